# SPDX-License-Identifier: GPL-2.0-only
"""The page about the commands says what the commands say."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pageferry import proc

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "commands.md"


def test_the_page_is_current() -> None:
    made = proc.capture(
        [sys.executable, ROOT / "scripts" / "command_reference.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert made.returncode == 0, made.stderr
    assert PAGE.read_text() == made.stdout, (
        "make it again: PYTHONPATH=src python3 scripts/command_reference.py"
        " > docs/reference/commands.md"
    )
