# SPDX-License-Identifier: GPL-2.0-only
"""What a benchmark program is given in a virtual machine."""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry.bench import build, execute
from pageferry.bench.lines import Environment, Line
from pageferry.kernel.build import BuildRequest
from pageferry.vm.run import VmRequest


class Outcome:
    accel = "tcg"


@pytest.mark.parametrize(
    ("parameters", "topology", "apart", "words"),
    [
        (b"parm=cpu:where it copies", "two-node", True, "channels=4 cpu=1"),
        (b"parm=cpus:something else", "two-node", True, "channels=4"),
        (b"parm=cpu:where it copies", "two-node", False, "channels=4"),
        (b"parm=cpu:where it copies", "cost", True, "channels=4"),
        # A real controller: nothing is simulated.
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
    seen: list[VmRequest] = []

    class Kernel:
        release, image, modules = "6.12", tmp_path, tmp_path

    def run(request: VmRequest, progress: object) -> tuple[list[Line], Outcome]:
        seen.append(request)
        return [Environment(bench="latency", release="6.12", version="")], Outcome()

    monkeypatch.setattr(build, "build", lambda arch: tmp_path)
    monkeypatch.setattr(execute, "build_kernel", lambda request: Kernel())
    monkeypatch.setattr(execute, "module_path", lambda kernel, name: module)
    monkeypatch.setattr(execute, "run_vm_lines", run)
    monkeypatch.setattr(execute, "describe_built", lambda kernel, environment: None)
    program = execute.Program(
        name="latency",
        arguments=["--rounds=1"],
        simulated={"dmasim": "channels=4"},
        simulated_apart=apart,
    )
    execute.execute(program, topology, BuildRequest(), 10.0, lambda line: None)
    (request,) = seen
    assert request.topology == topology
    # Not where instructions are what is counted.
    assert request.preallocate == (topology != "cost")
    given = [word for word in request.command if word.startswith("--module=")]
    assert given == ([] if words is None else [f"--module={module} {words}"])
