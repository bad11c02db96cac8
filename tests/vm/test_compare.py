# SPDX-License-Identifier: GPL-2.0-only
"""`compare` with each kind of pressure, on stock Linux and on ours."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from conftest import RunInVm
from helpers.compare_load import SIZE
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
LOAD = ("--", sys.executable, "-m", "helpers.compare_load")


@pytest.mark.parametrize(
    ("which", "pressure"),
    [
        ("kernel_vm", "move"),
        ("kernel_vm", "demote"),
        ("kernel_vm", "promote"),
        ("kernel_vm", "both"),
        ("kernel_vm", "compaction"),
        ("kernel_vanilla", "move"),
        ("kernel_vanilla", "both"),
    ],
)
def test_a_program_runs_under_pressure(
    which: str, pressure: str, in_vm: RunInVm, request: pytest.FixtureRequest
) -> None:
    kernel: BuiltKernel = request.getfixturevalue(which)
    engines = ("stock",) if which == "kernel_vanilla" else ("none", "cpu")
    words = ["compare", "--json", "--rounds", "1", "--pressure", pressure]
    words += ["--match", r"passes: (\d+)"]
    if which == "kernel_vm":
        words += ["--engines", ",".join(engines)]
    argv = (sys.executable, "-m", "pageferry", *words, *LOAD)
    path = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"}
    done = in_vm(kernel, *argv, topology="tiered", environment=path)
    assert done.status == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    rows = {row["name"]: row["variants"] for row in said["figures"]}
    assert [one["variant"] for one in rows["match"]] == ["quiet", *engines]
    assert all(one["median"] >= 1 for one in rows["match"])
    migrated = {one["variant"]: one["median"] for one in rows["migrated"]}
    if pressure != "compaction":
        # At least a good part of the program's memory went once.
        for engine in engines:
            assert migrated[engine] > migrated["quiet"] + SIZE / (1 << 20) / 2
    assert ("waits for migrating folios" in rows) == (which == "kernel_vm")
