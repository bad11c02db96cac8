# SPDX-License-Identifier: GPL-2.0-only
"""The machine of a benchmark: this one, or a virtual machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from hashlib import file_digest
from pathlib import Path

from pageferry import output, proc
from pageferry.bench.lines import Environment, Failure, Line, complete, parse_line
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Kernel, Machine
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.offload import DIRECTORY, Offload
from pageferry.vm.run import VmOutcome, VmRequest, run_vm

# Lines of one program alone; all programs print the others.
Kinds = Sequence[type[Line]]
# Attempts in a virtual machine, whose emulator may break the guest.
_RUNS = 3

# The program restores settings when its present call ends: move_pages(2) of a long list.
_CALL_S = 120.0


class _Reader:
    """Collects the output of a program."""

    def __init__(self, kinds: Kinds, progress: Callable[[Line], None]) -> None:
        self.lines: list[Line] = []
        self._kinds = kinds
        self._progress = progress
        self._rest = b""

    def text(self, text: str) -> None:
        """Add a whole line."""
        line = parse_line(text, *self._kinds)
        if line is not None:
            self.lines.append(line)
            self._progress(line)

    def data(self, data: bytes) -> None:
        """Add bytes, which may end inside a line."""
        *whole, self._rest = (self._rest + data).split(b"\n")
        for raw in whole:
            self.text(raw.decode(errors="replace"))


def run_live(
    argv: Sequence[str],
    kinds: Kinds,
    progress: Callable[[Line], None],
    *,
    pass_fds: Sequence[int] = (),
) -> list[Line]:
    """Run a benchmark program on this machine, and parse its output."""
    reader = _Reader(kinds, progress)
    with proc.group(argv, pass_fds=pass_fds, patience_s=_CALL_S) as process:
        assert process.stdout is not None
        for raw in process.stdout:
            text = raw.decode(errors="replace")
            if text.startswith("warning: "):
                output.warn(text.removeprefix("warning: ").rstrip())
            reader.text(text)
        code = process.wait()
    # A program reports its own errors as lines.
    if code and not any(isinstance(line, Failure) for line in reader.lines):
        raise PageferryError(
            "the benchmark program failed",
            value=Path(argv[0]).name,
            reason=f"exit status {code}",
        )
    return complete(reader.lines)


def live_obstacle(from_node: int, to_node: int, engines: Sequence[str]) -> str | None:
    """Return the reason why a benchmark cannot run on this machine, or None."""
    files = Files()
    here = {node.number: node for node in read_nodes(files)}
    for number in (from_node, to_node):
        if number not in here:
            return f"this machine has no node {number}"
        if not here[number].total_bytes:
            return f"node {number} of this machine has no memory"
    if any(engine != "stock" for engine in engines) and not Offload(files).is_present():
        return f"this kernel has no {DIRECTORY}"
    if os.geteuid() != 0:
        return "only root may choose an engine and see which folios are whole"
    return None


def host_cpu_model() -> str:
    """Return the CPU model of this machine."""
    try:
        text = Path("/proc/cpuinfo").read_text(errors="replace")
    except OSError:
        return "unknown"
    for line in text.splitlines():
        key, _, value = line.partition(":")
        if key.strip() == "model name":
            return value.strip()
    return "unknown"


def _file_sha256(path: Path) -> str | None:
    try:
        with path.open("rb") as stream:
            return file_digest(stream, "sha256").hexdigest()
    except OSError:
        return None


def describe_built(kernel: BuiltKernel, environment: Environment | None) -> Kernel:
    """Describe a kernel built by this tool."""
    kernel.require_unchanged()
    return Kernel(
        release=kernel.release,
        version=environment.version if environment else "",
        base=kernel.base,
        vanilla=kernel.vanilla,
        image=str(kernel.image),
        image_sha256=_file_sha256(kernel.image),
        config_sha256=_file_sha256(kernel.build_dir / ".config"),
    )


def describe_live(environment: Environment) -> Kernel:
    """Describe the running kernel."""
    return Kernel(
        release=environment.release,
        version=environment.version,
        config_sha256=_file_sha256(Path("/boot") / f"config-{environment.release}"),
    )


def describe_machine(
    environment: Environment,
    topology: str | None = None,
    accel: str | None = None,
    other_load: float | None = None,
) -> Machine:
    """Describe the machine that the program ran on, virtual if it has a topology."""
    vm = topology is not None
    return Machine(
        where="vm" if vm else "live",
        cpu_model=environment.cpu_model,
        cpus=environment.cpus,
        nodes=environment.nodes,
        accel=accel,
        topology=topology,
        host_cpu_model=host_cpu_model() if vm else None,
        host_cpus=len(os.sched_getaffinity(0)) if vm else None,
        host_kernel=os.uname().release,
        host_other_load=other_load,
    )


def module_path(kernel: BuiltKernel, name: str) -> Path:
    """Find a module of a kernel built by this tool."""
    found = sorted(kernel.modules.rglob(f"{name}.ko"))
    if not found:
        raise PageferryError(
            "the kernel has no such module",
            value=f"{name}.ko",
            reason=f"not in {kernel.modules}",
            hint="leave that engine out with --engines",
            code=ExitCode.UNSUPPORTED,
        )
    return found[0]


def run_vm_lines(
    request: VmRequest, kinds: Kinds, progress: Callable[[Line], None]
) -> tuple[list[Line], VmOutcome]:
    """Run a benchmark program in a virtual machine, and parse its output.

    If an emulator broke the guest, run it again from the beginning.
    """
    for left in reversed(range(_RUNS)):
        reader = _Reader(kinds, progress)
        outcome = run_vm(replace(request, on_stdout=reader.data))
        if not (outcome.broken_by_qemu and left):
            break
        output.talk(f"QEMU broke the guest: measuring again (see {outcome.serial_log})")
    _check(request, reader.lines, outcome)
    return complete(reader.lines), outcome


def _check(request: VmRequest, lines: Sequence[Line], outcome: VmOutcome) -> None:
    """Raise an error if the program failed; pass on its warnings."""
    if outcome.timed_out:
        raise PageferryError(
            "the benchmark did not end in time",
            value=f"{request.timeout_s or 0:.0f} s",
            detail=outcome.serial_tail(),
            hint="give it more with --timeout, or measure less",
            code=ExitCode.TIMEOUT,
        )
    if outcome.findings:
        raise PageferryError(
            "the kernel complained while pages moved",
            value=outcome.serial_log,
            detail="\n".join(outcome.findings),
        )
    failed = any(isinstance(line, Failure) for line in lines)
    if outcome.exit_code != 0 and not failed:
        raise PageferryError(
            "the benchmark program failed in the virtual machine",
            value=outcome.serial_log,
            reason=f"exit status {outcome.exit_code}",
            detail=outcome.stderr or outcome.serial_tail(),
        )
    for text in outcome.stderr.splitlines():
        if text.startswith("warning: "):
            output.warn(text.removeprefix("warning: "))
