# SPDX-License-Identifier: GPL-2.0-only
"""Carries out a benchmark: build, run on the chosen machine, make a result."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pageferry import __version__, output
from pageferry.bench import build, writes
from pageferry.bench.disturbance import TOLERABLE, Disturbance
from pageferry.bench.layouts import noted, one_after_the_other
from pageferry.bench.lines import Environment, Line, Skipped, Timed, environment_of
from pageferry.bench.plan import Plan
from pageferry.bench.spec import Benchmark
from pageferry.bench.target import (
    describe_built,
    describe_live,
    describe_machine,
    module_path,
    run_live,
    run_vm_lines,
)
from pageferry.interleave import lock
from pageferry.kernel.build import BuildRequest, build_kernel, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Kernel, Machine, Result, Row
from pageferry.sysfs.files import Files
from pageferry.units import format_size
from pageferry.vm import topology
from pageferry.vm.run import VmRequest

Seen = Callable[[Line], None]


@contextlib.contextmanager
def _shown(measurements: int) -> Iterator[Seen]:
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


@dataclass(frozen=True)
class Job:
    """A plan and its machine.

    where None: on this machine.
    """

    bench: Benchmark
    plan: Plan
    args: argparse.Namespace
    where: str | None
    kernel: BuildRequest
    timeout_s: float | None = None
    layouts: int = 1

    @property
    def simulated(self) -> bool:
        """Return whether the machine simulates DMA channels."""
        return self.where is not None and not topology.load(self.where).dma_channels

    def dry_run(self) -> list[str]:
        """Describe the steps and writes of a run."""
        plan = self.plan
        words = [plan.program, *plan.arguments()]
        steps = ["build the programs in bench/"]
        if self.where is None:
            steps.append("on this machine: " + shlex.join(words))
            if not self.bench.native:
                steps += [*writes.ENGINES, *plan.writes(), "restore all of them"]
        else:
            steps += describe(plan_build(self.kernel))
            often = f", {self.layouts} times in turn" if self.layouts > 1 else ""
            named = " ".join([self.where, *plan.words()])
            steps.append(f"boot topology {named}{often}")
            simulated = plan.simulated() if self.simulated else {}
            words += [f"--module={name}.ko {how}" for name, how in simulated.items()]
            words += [f"--module={name}.ko" for name in plan.modules()]
            steps.append("in it: " + shlex.join(words))
        if not self.bench.native:
            steps += plan.leaves(live=self.where is None)
        return [*steps, f"keep the result in {store.results_dir()}"]

    def measure(self, plan: Plan) -> tuple[list[Line], Kernel, Machine]:
        """Run the program once, or once in each boot."""
        with _shown(plan.measurements() * self.layouts) as seen:
            if self.where is not None:
                return self._in_vm(plan, self.where, seen)
            argv = [str(build.build() / plan.program), *plan.arguments()]
            others = Disturbance()
            with self._alone():
                lines = run_live(argv, self.bench.lines, seen)
        here = environment_of(lines)
        machine = describe_machine(here, other_load=_say(others))
        return lines, describe_live(here), machine

    def _alone(self) -> contextlib.AbstractContextManager[int | None]:
        """Keep others from changing settings of this machine that the program changes."""
        if self.bench.native:
            return contextlib.nullcontext()
        return lock.hold_settings(Files())

    def _in_vm(
        self, plan: Plan, where: str, seen: Seen
    ) -> tuple[list[Line], Kernel, Machine]:
        path = build.build(self.kernel.arch) / plan.program
        kernel = build_kernel(self.kernel)
        arguments = plan.arguments()
        wanted = topology.load(where)
        apart = self.bench.simulated_apart and wanted.cpus > 1
        simulated = {} if wanted.dma_channels else plan.simulated()
        for name, words in simulated.items():
            module = module_path(kernel, name)
            cpu = " cpu=1" if apart and _knows(module, "cpu") else ""
            arguments.append(f"--module={module} {words}{cpu}")
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
            timeout_s=plan.limit_s() if self.timeout_s is None else self.timeout_s,
            # Where the host's time counts, the guest's first touch of a page must not
            # fault on the host.
            preallocate=not wanted.icount,
        )
        boots: list[list[Line]] = []
        others = Disturbance()
        for nr in range(1, self.layouts + 1):
            of_all = f", {nr} of {self.layouts}" if self.layouts > 1 else ""
            output.talk(f"booting {kernel.release}, topology {where}{of_all}")
            kernel.require_unchanged()
            lines, outcome = run_vm_lines(vm, self.bench.lines, seen)
            boots.append(lines)
        load = _say(others)
        lines = one_after_the_other(boots)
        here = environment_of(lines)
        machine = describe_machine(here, where, outcome.accel, load)
        return lines, describe_built(kernel, here), machine

    def run(self) -> Result:
        """Measure, verify, and return the result."""
        begin = time.monotonic_ns()
        bench, plan = self.bench, self.plan
        if plan.rounds < 5:
            output.warn(f"{plan.rounds} rounds are few: medians want at least 5")
        if bench.settle is not None:
            plan = bench.settle(plan, self)
        lines, kernel, machine = self.measure(plan)
        if bench.warn is not None:
            bench.warn(lines)
        assert bench.make_rows is not None
        rows = noted(bench.make_rows(plan, lines), self.layouts)
        theirs = bench.published.get(self.args.published, ())
        return make_result(
            *(begin, self.args, rows, lines, kernel, machine),
            checks=bench.judge(self.args, rows),
            published=[published.load(name).as_json() for name in theirs] or None,
        )


def _knows(module: Path, parameter: str) -> bool:
    """Return whether a module has this parameter."""
    return f"parm={parameter}:".encode() in module.read_bytes()


def _say(others: Disturbance) -> float | None:
    share = others.share()
    if share is not None and share > TOLERABLE:
        output.warn(
            f"other work took {share * 100:.0f}% of this host's CPU time "
            "meanwhile: the figures are worth little"
        )
    return share


def make_result(
    begin_ns: int,
    args: argparse.Namespace,
    rows: list[Row],
    lines: Sequence[Line],
    kernel: Kernel,
    machine: Machine,
    **more: Any,  # noqa: ANN401
) -> Result:
    """Make the common part of every result."""
    return Result(
        command=["pageferry", *args.words],
        kernel=kernel,
        machine=machine,
        rows=rows,
        settings=environment_of(lines).settings,
        created=store.now(),
        pageferry_version=__version__,
        elapsed_ns=time.monotonic_ns() - begin_ns,
        **more,
    )
