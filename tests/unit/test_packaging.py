# SPDX-License-Identifier: GPL-2.0-only
"""What is shipped for others' tools to read."""

from __future__ import annotations

import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
UNITS = ROOT / "packaging" / "systemd"


def complaints(unit: Path, text: str) -> str:
    """Return the errors that systemd finds in a unit, whose program may be missing."""
    unit.write_text(text.replace("/usr/bin/pageferry", "/bin/true"))
    done = subprocess.run(
        ["systemd-analyze", "verify", str(unit)],
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    return said or ("" if done.returncode == 0 else f"exit code {done.returncode}")


def test_systemd_understands_every_line_of_the_unit(tmp_path: Path) -> None:
    (unit,) = UNITS.glob("*.service")
    text = unit.read_text()
    assert "ExecStart=/usr/bin/pageferry balance" in text
    assert complaints(tmp_path / unit.name, text) == ""
    wrong = text.replace("ProtectSystem=", "ProtectSystems=")
    assert "ProtectSystems" in complaints(tmp_path / unit.name, wrong)
