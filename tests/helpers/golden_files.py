# SPDX-License-Identifier: GPL-2.0-only
"""Compares texts with kept files, or updates these on request."""

from __future__ import annotations

import os
from pathlib import Path

UPDATE = "PAGEFERRY_UPDATE_GOLDEN"


def check_golden(path: Path, text: str) -> None:
    """Compare; with PAGEFERRY_UPDATE_GOLDEN=1 in the environment, write."""
    if os.environ.get(UPDATE) == "1":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    assert text == kept, f"{path} is not current; {UPDATE}=1 pytest ... accepts it"
