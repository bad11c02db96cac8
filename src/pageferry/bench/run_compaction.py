# SPDX-License-Identifier: GPL-2.0-only
"""Carrying out `bench compaction`."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass

from pageferry import __version__, output
from pageferry.bench import writes
from pageferry.bench.compaction import CompactionPlan, describe_size, make_rows
from pageferry.bench.execute import Program, execute, shown
from pageferry.bench.layouts import boots, noted
from pageferry.bench.lines import Compaction, Line, settings
from pageferry.bench.target import environment_of
from pageferry.kernel.build import BuildRequest, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Result

# Fragmenting, verifying and compacting, where CPUs are emulated and memory small.
_MEASUREMENT_S = 60.0
_TIMEOUT_BASE_S = 300.0

_WRITES = (
    *writes.ENGINES,
    writes.OTHER_MIGRATION,
    "write /proc/sys/vm/{compaction_proactiveness,percpu_pagelist_high_fraction}",
)
_MODULE = "write /sys/kernel/debug/migrate_compact_test/{node,count,drain,run,free}"


@dataclass(frozen=True)
class Job:
    """A plan, and where it runs. topology None: on this machine."""

    plan: CompactionPlan
    topology: str | None
    kernel: BuildRequest
    command: tuple[str, ...]
    with_published: bool = False
    timeout_s: float | None = None
    layouts: int = 1

    def limit_s(self) -> float:
        """Give the time after which a virtual machine is given up, at each boot."""
        if self.timeout_s is not None:
            return self.timeout_s
        return _TIMEOUT_BASE_S + self.plan.measurements() * _MEASUREMENT_S


def dry_run(job: Job) -> list[str]:
    """Say what a run would do and write."""
    plan = job.plan
    program = ["compaction", *plan.arguments()]
    takes = f"map {describe_size(plan)} on node {plan.node}, and free every other page"
    steps = ["build the programs in bench/"]
    if job.topology is None:
        steps += ["on this machine: " + shlex.join(program), *_WRITES]
        steps += [*writes.of_limit(plan.max_unmapped_us), "restore all of them"]
        steps += [*writes.of_rate(plan.channel_percent), _MODULE, takes]
        steps.append("take all free blocks of 2M there, for the time of a measurement")
    else:
        steps += describe(plan_build(job.kernel))
        steps.append(boots(job.topology, job.layouts))
        modules = [
            f"--module={name}.ko {parameters}"
            for name, parameters in plan.simulated().items()
        ]
        modules += [f"--module={name}.ko" for name in plan.modules()]
        steps += ["in it: " + shlex.join([*program, *modules]), takes]
    steps.append(f"keep the result in {store.results_dir()}")
    return steps


def run(job: Job) -> Result:
    """Measure, and give the result with every row verified."""
    begin = time.monotonic_ns()
    plan = job.plan
    if plan.rounds < 5:
        output.warn(f"{plan.rounds} rounds are few: medians want at least 5")
    program = Program(
        name="compaction",
        arguments=plan.arguments(),
        modules=plan.modules(),
        simulated=plan.simulated(),
        simulated_apart=True,
    )
    with shown(plan.measurements() * job.layouts) as seen:
        lines, kernel, machine = execute(
            *(program, job.topology, job.kernel),
            *(job.limit_s(), seen, job.layouts),
        )
    warn_of_few(lines)
    tables = [published.load("compaction_rfc_v4")] if job.with_published else []
    return Result(
        command=list(job.command),
        kernel=kernel,
        machine=machine,
        rows=noted(make_rows(lines), job.layouts),
        settings=settings(environment_of(lines)),
        created=store.now(),
        pageferry_version=__version__,
        elapsed_ns=time.monotonic_ns() - begin,
        published=[table.as_json() for table in tables] or None,
    )


def warn_of_few(lines: Sequence[Line]) -> None:
    """Say whether all samples are of what was asked for, and which are not."""
    samples = [line for line in lines if isinstance(line, Compaction)]
    repeated = sum(sample.repeated for sample in samples)
    if repeated:
        output.warn(
            f"{repeated} measurements were repeated: they got fewer huge pages than "
            "they asked for"
        )
    few = [sample for sample in samples if sample.allocated < sample.asked]
    if few:
        worst = min(few, key=lambda sample: sample.allocated)
        output.warn(
            f"{len(few)} times fewer huge pages than asked for were to be had, "
            f"at worst {worst.allocated} of {worst.asked} ({worst.ended})"
        )
