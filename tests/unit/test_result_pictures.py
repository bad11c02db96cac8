# SPDX-License-Identifier: GPL-2.0-only
"""docs/results has current pictures of its results."""

from __future__ import annotations

import re
import sys
from pathlib import Path

import msgspec

from pageferry import proc

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
SCRIPT = ROOT / "scripts/result_pictures.py"


def test_the_pictures_are_current() -> None:
    code = (
        "import json, runpy; "
        f"print(json.dumps(runpy.run_path({str(SCRIPT)!r})['pictures']()))"
    )
    env = {"PYTHONPATH": str(ROOT / "src")}
    made = proc.capture([sys.executable, "-c", code], env=env)
    assert made.returncode == 0, made.stderr
    wanted = msgspec.json.decode(made.stdout, type=dict[str, str])
    kept = {path.name: path.read_text() for path in RESULTS.glob("pictures/*")}
    assert kept == wanted, (
        "make them again: PYTHONPATH=src $(python3 scripts/bootstrap.py python)"
        " scripts/result_pictures.py"
    )
    # Each result has a picture, and the page shows it.
    assert {name.rpartition(".")[0].rpartition(".")[0] for name in wanted} == {
        path.stem for path in RESULTS.glob("*.json")
    }
    page = (RESULTS / "README.md").read_text()
    assert set(re.findall(r"\]\(pictures/([^)]+)\)", page)) == set(wanted)
