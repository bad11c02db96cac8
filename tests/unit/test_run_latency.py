# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency` from the command line to the result, without a machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from helpers.bench_data import result as any_result
from helpers.latency_data import measured
from pageferry.bench.job import Job
from pageferry.bench.latency.cases import LatencyPlan
from pageferry.bench.lines import Environment, Line
from pageferry.cli import main
from pageferry.results.schema import Kernel, Machine, decode

VM = ["bench", "latency", "--vm", "--rounds", "2"]


class FakeMachine:
    """Moves 1 GB/s in all cases, with each folio back after 1.1 us."""

    def __init__(self) -> None:
        self.plans: list[LatencyPlan] = []
        self.lost_ns = 0

    def measure(
        self, job: Job, plan: LatencyPlan
    ) -> tuple[list[Line], Kernel, Machine]:
        assert job.where == "two-node"
        # The time after which a machine counts as hung.
        assert job.timeout_s is None and plan.limit_s() > 300
        assert job.bench.simulated_apart
        self.plans.append(plan)
        lines: list[Line] = [Environment(bench="latency", release="6.12", version="")]
        for number in range(plan.rounds + 1):
            for index, case in enumerate(plan.cases):
                # Emulators start slowly.
                elapsed_ns = case.total_bytes * (100 if number == 0 else 1)
                line = measured(case, index, number, elapsed_ns)
                if case.engine == "dcbm":
                    line.touch_lost_ns = self.lost_ns
                lines.append(line)
        fixed = any_result([])
        return lines, fixed.kernel, fixed.machine


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> FakeMachine:
    found = FakeMachine()
    monkeypatch.setattr(Job, "measure", lambda job, plan: found.measure(job, plan))
    return found


def test_a_sweep(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    argv = [*VM, "--engines", "stock,dcbm", "--caps", "512,1024", "--output", str(path)]
    assert main(argv) == 0
    said = capsys.readouterr()
    assert "<- knee" in said.out
    assert "2 rounds are few" in said.err
    kept = decode(path.read_bytes())
    assert len(kept.rows) == 2 * (1 + 4)
    assert {row.ratio_to_stock for row in kept.rows} == {1.0}
    (plan,) = machine.plans
    assert plan.simulated() == {"dmasim": "channels=16 bandwidth_mbps=64"}
    assert main([*argv, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["rows"][0]["unmapped_ns"]["mean"] == 1100
    assert "checks" not in document


def test_published_figures_are_marked(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    fixed = ["--published", "workload", "--output", str(path)]
    assert main([*VM, *fixed]) == 0
    assert "published by others" in capsys.readouterr().out
    (table,) = decode(path.read_bytes()).published or []
    assert table["measured_by"] == "others"


def test_a_check_learns_first(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "result.json"
    assert main([*VM, "--check", "--output", str(path)]) == 0
    said = capsys.readouterr()
    assert "NOT OK" not in said.out
    kept = decode(path.read_bytes())
    assert kept.checks is not None
    assert len(kept.checks) > 20
    assert len(machine.plans) == 3
    # An eighth of 1 GB/s by 16 channels, but at least 10; a half; all of it.
    assert "channels of 10 MB/s for 2M, 31 MB/s for 4K to overlap" in said.err
    assert "else 62" in said.err
    assert machine.plans[1].simulated()["dmasim"].endswith("=62")


def test_a_check_fails_for_a_reason(
    machine: FakeMachine, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    machine.lost_ns = 10**9
    path = tmp_path / "result.json"
    argv = [*VM, "--check", "toucher", "--output", str(path), "--json"]
    assert main(argv) == 1
    said = capsys.readouterr()
    error = json.loads(said.out)["error"]
    assert str(path) in json.dumps(error)
    assert "toucher: 4 KiB" in error["reason"]
    assert "NOT OK toucher: 2 MiB" in said.err
    kept = decode(path.read_bytes())
    assert [check.ok for check in kept.checks or []] == [False, False]


def test_real_channels_have_no_rate_to_set(
    machine: FakeMachine, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*VM, "--topology", "versal", "--check"]) == 3
    assert "rate can be set" in capsys.readouterr().err
    assert machine.plans == []
