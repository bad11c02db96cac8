# SPDX-License-Identifier: GPL-2.0-only
"""Carries out a benchmark: build, run on the chosen machine, make a result."""

from __future__ import annotations

import argparse
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pageferry import __version__, output
from pageferry.bench import writes
from pageferry.bench.execute import execute, shown
from pageferry.bench.layouts import boots, noted
from pageferry.bench.lines import Line, environment_of
from pageferry.bench.plan import Measures
from pageferry.bench.spec import Benchmark
from pageferry.kernel.build import BuildRequest, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Kernel, Machine, Result, Row
from pageferry.vm import topology


@dataclass(frozen=True)
class Job:
    """A plan and its machine.

    where None: on this machine.
    """

    bench: Benchmark
    plan: Measures
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
            steps += [*writes.ENGINES, *plan.writes(), "restore all of them"]
        else:
            steps += describe(plan_build(self.kernel))
            steps.append(boots(" ".join([self.where, *plan.words()]), self.layouts))
            simulated = plan.simulated() if self.simulated else {}
            words += [f"--module={name}.ko {how}" for name, how in simulated.items()]
            words += [f"--module={name}.ko" for name in plan.modules()]
            steps.append("in it: " + shlex.join(words))
        steps += plan.leaves(live=self.where is None)
        return [*steps, f"keep the result in {store.results_dir()}"]

    def measure(self, plan: Measures) -> tuple[list[Line], Kernel, Machine]:
        """Run the program once, or once in each boot."""
        limit_s = plan.limit_s() if self.timeout_s is None else self.timeout_s
        with shown(plan.measurements() * self.layouts) as seen:
            return execute(
                *(self.bench, plan, self.where, self.kernel),
                *(limit_s, seen, self.layouts),
            )

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
