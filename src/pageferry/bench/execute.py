# SPDX-License-Identifier: GPL-2.0-only
"""Runs a benchmark program, on this machine or in a virtual one."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from pathlib import Path

from pageferry import output
from pageferry.bench import build
from pageferry.bench.disturbance import Disturbance
from pageferry.bench.layouts import one_after_the_other
from pageferry.bench.lines import Environment, Line, Skipped, Timed, environment_of
from pageferry.bench.plan import Measures
from pageferry.bench.spec import Benchmark
from pageferry.bench.target import (
    Place,
    describe_built,
    describe_live,
    module_path,
    run_lines,
    run_live,
    run_vm_lines,
)
from pageferry.kernel.build import BuildRequest, build_kernel
from pageferry.results.schema import Kernel, Machine
from pageferry.units import format_size
from pageferry.vm import topology
from pageferry.vm.run import VmRequest

Seen = Callable[[Line], None]


@contextlib.contextmanager
def shown(measurements: int) -> Iterator[Seen]:
    """Show the progress of a program with this many measurements."""
    progress = output.Progress("measuring", measurements)

    def seen(line: Line) -> None:
        if isinstance(line, Environment) and not progress.done:
            # The build and the boot took the time until here.
            progress.start = time.monotonic()
        elif isinstance(line, Timed):
            progress.advance()
        elif isinstance(line, Skipped):
            progress.finish()
            output.warn(f"{format_size(line.folio_bytes)} skipped: {line.reason}")

    try:
        yield seen
    finally:
        progress.finish()


def execute(
    bench: Benchmark,
    plan: Measures,
    where: str | None,
    request: BuildRequest,
    limit_s: float,
    seen: Seen,
    layouts: int = 1,
) -> tuple[list[Line], Kernel, Machine]:
    """Run a program in the named topology, or with None on this machine.

    A virtual machine boots once per memory layout, and has limit_s for each boot.
    """
    if where is not None:
        return _in_vm(bench, plan, where, request, limit_s, seen, layouts)
    argv = [str(build.build() / plan.program), *plan.arguments()]
    with Disturbance() as others:
        lines = run_lines(run_live, argv, bench.lines, seen)
    environment = environment_of(lines)
    place = Place(other_load=_say(others))
    return lines, describe_live(environment), place.describe(environment)


def _in_vm(
    bench: Benchmark,
    plan: Measures,
    where: str,
    request: BuildRequest,
    limit_s: float,
    seen: Seen,
    layouts: int,
) -> tuple[list[Line], Kernel, Machine]:
    path = build.build(request.arch) / plan.program
    kernel = build_kernel(request)
    arguments = plan.arguments()
    machine = topology.load(where)
    apart = bench.simulated_apart and machine.cpus > 1
    simulated = {} if machine.dma_channels else plan.simulated()
    for name, parameters in simulated.items():
        module = module_path(kernel, name)
        words = f"{parameters} cpu=1" if apart and _knows(module, "cpu") else parameters
        arguments.append(f"--module={module} {words}")
    for name in plan.modules():
        # A simulated rate tests the channels alone.
        alone = " cpu_share=0" if name == "dcbm" and simulated else ""
        arguments.append(f"--module={module_path(kernel, name)}{alone}")
    vm = VmRequest(
        command=(str(path), *arguments),
        image=kernel.image,
        modules=kernel.modules,
        topology=where,
        append=tuple(plan.words()),
        timeout_s=limit_s,
        # Where the host's time counts, the guest's first touch of a page must not fault
        # on the host.
        preallocate=not machine.icount,
    )
    boots: list[list[Line]] = []
    with Disturbance() as others:
        for nr in range(1, layouts + 1):
            of_all = f", {nr} of {layouts}" if layouts > 1 else ""
            output.talk(f"booting {kernel.release}, topology {where}{of_all}")
            lines, outcome = run_vm_lines(vm, bench.lines, seen)
            boots.append(lines)
    lines = one_after_the_other(boots)
    environment = environment_of(lines)
    place = Place(outcome.accel, where, _say(others))
    return lines, describe_built(kernel, environment), place.describe(environment)


def _knows(module: Path, parameter: str) -> bool:
    """Return whether a module has this parameter."""
    return f"parm={parameter}:".encode() in module.read_bytes()


def _say(others: Disturbance) -> float | None:
    if others.too_much and others.share is not None:
        output.warn(
            f"other work took {others.share * 100:.0f}% of this host's CPU time "
            "meanwhile: the figures are worth little"
        )
    return others.share
