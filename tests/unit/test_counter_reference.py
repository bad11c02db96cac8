# SPDX-License-Identifier: GPL-2.0-only
"""The page about counters follows the kernel's ABI files."""

from __future__ import annotations

import sys
from pathlib import Path

from pageferry import proc

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "counters.md"
ABI = ROOT / "linux" / "tree" / "Documentation" / "ABI" / "testing"
SCRIPT = "scripts/counter_reference.py"


def test_the_page_is_current() -> None:
    made = proc.capture([sys.executable, ROOT / SCRIPT])
    assert made.returncode == 0, made.stderr
    assert PAGE.read_text(encoding="utf-8") == made.stdout, (
        f"make it again: python3 {SCRIPT} > docs/reference/counters.md"
    )


def test_the_page_has_every_counter_of_the_kernel() -> None:
    core = ROOT / "linux" / "tree" / "mm" / "migrate_offload"
    header = (core / "internal.h").read_text()
    counters = header.split("enum migrate_offload_counter {")[1].split("NR_MO_")[0]
    names = [
        word.strip(",").removeprefix("MO_").lower()
        for word in counters.split()
        if word.startswith("MO_")
    ]
    page = PAGE.read_text(encoding="utf-8")
    assert len(names) > 10
    assert [name for name in names if f"| `{name}` |" not in page] == []
