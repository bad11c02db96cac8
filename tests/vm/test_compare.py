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
from pageferry.bench import build
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
LOAD = ("--", sys.executable, "-m", "helpers.compare_load")


@pytest.mark.parametrize(
    ("which", "pressure"),
    [
        ("kernel_vm", "both"),
        ("kernel_vm", "compaction"),
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
    if pressure != "compaction":
        argv += ("until-moved",)
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


@pytest.mark.parametrize(("program", "rate"), [("gups", "updates"), ("embed", "rows")])
def test_a_program_of_bench_runs_under_pressure(
    program: str, rate: str, in_vm: RunInVm, kernel_vm: BuiltKernel
) -> None:
    words = ("--json", "--rounds", "1", "--engines", "none", "--pressure", "demote")
    size_mib = 32
    load = (str(build.build() / program), "--bytes", f"{size_mib}M", "--seconds", "6")
    argv = (sys.executable, "-m", "pageferry", "compare", *words, "--", *load)
    path = {"PYTHONPATH": str(ROOT / "src")}
    done = in_vm(kernel_vm, *argv, topology="tiered", environment=path)
    # The program has found each word as it left it.
    assert done.status == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    rows = {
        row["name"]: {one["variant"]: one["median"] for one in row["variants"]}
        for row in said["figures"]
    }
    assert rows[rate]["quiet"] > 0 and rows[rate]["none"] > 0
    assert rows["p50"]["none"] <= rows["p99"]["none"] <= rows["max"]["none"]
    # Half of the first turn. Most of the table is cold, and the program has less than
    # this of other memory.
    assert rows["migrated"]["none"] > rows["migrated"]["quiet"] + size_mib / 8
