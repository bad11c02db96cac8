# SPDX-License-Identifier: GPL-2.0-only
"""The arguments of a benchmark program in a guest, and its output."""

from __future__ import annotations

import argparse
import dataclasses
from pathlib import Path

import pytest

from helpers.fake_machine import boots
from pageferry.bench import target
from pageferry.bench.job import Job
from pageferry.bench.latency.cases import Case, LatencyPlan
from pageferry.bench.latency.spec import SPEC
from pageferry.bench.lines import Environment, Line
from pageferry.errors import PageferryError
from pageferry.kernel.build import BuildRequest
from pageferry.vm.run import VmOutcome, VmRequest


@pytest.mark.parametrize(
    ("parameters", "topology", "apart", "words"),
    [
        (
            b"parm=cpu:where it copies",
            "two-node",
            True,
            "channels=4 bandwidth_mbps=9 cpu=1",
        ),
        (b"parm=cpus:something else", "two-node", True, "channels=4 bandwidth_mbps=9"),
        (b"parm=cpu:where it copies", "two-node", False, "channels=4 bandwidth_mbps=9"),
        (b"parm=cpu:where it copies", "cost", True, "channels=4 bandwidth_mbps=9"),
        # A real controller: no simulation.
        (b"parm=cpu:where it copies", "versal", True, None),
    ],
)
def test_what_is_simulated_gets_a_cpu(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    parameters: bytes,
    topology: str,
    apart: bool,
    words: str | None,
) -> None:
    module = tmp_path / "dmasim.ko"
    module.write_bytes(b"\0license=GPL\0" + parameters + b"\0")
    lines: list[Line] = [Environment(bench="latency", release="6.12", version="")]
    seen = boots(monkeypatch, tmp_path, lambda _: lines, module)
    plan = LatencyPlan(cases=(Case("dcbm", channels=4, mbps=9),), rounds=1)
    bench = dataclasses.replace(SPEC, simulated_apart=apart)
    Job(bench, plan, argparse.Namespace(), topology, BuildRequest()).measure(plan)
    (request,) = seen
    assert request.topology == topology
    assert request.timeout_s == plan.limit_s()
    # Not where instructions are counted.
    assert request.preallocate == (topology != "cost")
    given = [word for word in request.command if word.startswith("--module=")]
    # A simulated rate tests the engine alone, without a share for the CPU.
    simulated = [] if words is None else [f"--module={module} {words}"]
    alone = " cpu_share=0" if words else ""
    assert given == [*simulated, f"--module={module}{alone}"]


WELL = VmOutcome(
    exit_code=0,
    timed_out=False,
    stdout="",
    stderr="",
    serial_log=Path("serial.log"),
    findings=(),
    accel="tcg",
    boot_s=1.0,
    guest_boot_s=1.0,
    run_s=1.0,
)
BROKEN = dataclasses.replace(WELL, exit_code=None, findings=("Oops: int3: 0000",))
ENVIRONMENT = (
    b'{"type": "environment", "bench": "latency", "release": "6.12", "version": ""}\n'
)
DONE = b'{"type": "done", "rounds": 1}\n'


def runs(monkeypatch: pytest.MonkeyPatch, *outcomes: VmOutcome) -> None:
    """Have virtual machines end in these ways, one after the other."""
    left = iter(outcomes)

    def run(request: VmRequest) -> VmOutcome:
        outcome = next(left)
        assert request.on_stdout is not None
        request.on_stdout(ENVIRONMENT)
        # Output of a broken guest is useless, half a line most of all.
        request.on_stdout(b'{"type": "do' if outcome.findings else DONE)
        return outcome

    monkeypatch.setattr(target, "run_vm", run)


def test_what_an_emulator_broke_is_measured_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    runs(monkeypatch, BROKEN, BROKEN, WELL)
    lines, outcome = target.run_vm_lines(
        VmRequest(("true",), image=Path("x")), (), lambda line: None
    )
    assert outcome is WELL
    assert sum(isinstance(line, Environment) for line in lines) == 1
    said = capsys.readouterr().err
    assert said.count("measuring again") == 2
    assert "serial.log" in said


@pytest.mark.parametrize(
    "outcomes",
    [
        (BROKEN,) * 3,
        # A fault of the kernel, not of the machine.
        (dataclasses.replace(BROKEN, accel="kvm"),),
        (dataclasses.replace(BROKEN, findings=("BUG: x",)),),
    ],
)
def test_what_a_kernel_says_is_an_error(
    monkeypatch: pytest.MonkeyPatch, outcomes: tuple[VmOutcome, ...]
) -> None:
    runs(monkeypatch, *outcomes)
    with pytest.raises(PageferryError, match="the kernel complained"):
        target.run_vm_lines(
            VmRequest(("true",), image=Path("x")), (), lambda line: None
        )
