# SPDX-License-Identifier: GPL-2.0-only
"""Carrying out `bench demotion` and `bench promotion`."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from pageferry import __version__, output
from pageferry.bench import writes
from pageferry.bench.execute import Program, execute, shown
from pageferry.bench.layouts import boots, noted
from pageferry.bench.lines import (
    settings,
)
from pageferry.bench.target import environment_of
from pageferry.bench.tiers import PROMOTION, TierPlan, make_rows
from pageferry.kernel.build import BuildRequest, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Result

# A run that hangs must end; one that is merely slow must not.
_SLOWEST_BYTES_PER_S = 2_000_000
_TIMEOUT_BASE_S = 300.0
# Each measurement of promotion waits until the kernel has looked at the memory.
_PROMOTION_S = 60.0

_WRITES = (*writes.ENGINES, writes.FOLIO_SIZES, writes.OTHER_MIGRATION)
_WRITES_DEMOTION = (
    "write /sys/kernel/mm/numa/demotion_enabled",
    "write /sys/fs/cgroup/cgroup.subtree_control",
    "make a cgroup /sys/fs/cgroup/pageferry-PID, and remove it",
    writes.TRACING,
    "with --pressure max: write /proc/sys/kernel/printk, and have the kernel kill",
    "children of the benchmark for want of memory in that cgroup",
)
_WRITES_PROMOTION = (
    "write /sys/kernel/debug/sched/numa_balancing/"
    "{scan_delay_ms,scan_period_min_ms,scan_period_max_ms,scan_size_mb,"
    "hot_threshold_ms}, where they are",
)


@dataclass(frozen=True)
class Job:
    """A plan, and where it runs. topology None: on this machine."""

    plan: TierPlan
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
        limit = _TIMEOUT_BASE_S + self.plan.moved_bytes() / _SLOWEST_BYTES_PER_S
        if self.plan.bench == PROMOTION:
            limit += self.plan.measurements() * _PROMOTION_S
        return limit


def dry_run(job: Job) -> list[str]:
    """Say what a run would do and write."""
    plan = job.plan
    program = [plan.bench, *plan.arguments()]
    steps = ["build the programs in bench/"]
    if job.topology is None:
        own = _WRITES_PROMOTION if plan.bench == PROMOTION else _WRITES_DEMOTION
        steps.append("on this machine: " + shlex.join(program))
        steps += [*_WRITES, *writes.of_limit(plan.max_unmapped_us), *own]
        steps += ["restore all of them", writes.COMPACTED]
    else:
        steps += describe(plan_build(job.kernel))
        steps.append(boots(job.topology, job.layouts))
        modules = [
            f"--module={name}.ko {parameters}"
            for name, parameters in plan.simulated().items()
        ]
        modules += [f"--module={name}.ko" for name in plan.modules()]
        steps.append("in it: " + shlex.join([*program, *modules]))
    steps.append(f"keep the result in {store.results_dir()}")
    return steps


def run(job: Job) -> Result:
    """Measure, and give the result with every row verified."""
    begin = time.monotonic_ns()
    plan = job.plan
    if plan.rounds < 5:
        output.warn(f"{plan.rounds} rounds are few: medians want at least 5")
    program = Program(
        name=plan.bench,
        arguments=plan.arguments(),
        modules=plan.modules(),
        simulated=plan.simulated(),
    )
    with shown(plan.measurements() * job.layouts) as seen:
        lines, kernel, machine = execute(
            *(program, job.topology, job.kernel),
            *(job.limit_s(), seen, job.layouts),
        )
    tables = [published.load("single_vs_list_2019")] if job.with_published else []
    return Result(
        command=list(job.command),
        kernel=kernel,
        machine=machine,
        rows=noted(make_rows(plan.bench, lines), job.layouts),
        settings=settings(environment_of(lines)),
        created=store.now(),
        pageferry_version=__version__,
        elapsed_ns=time.monotonic_ns() - begin,
        published=[table.as_json() for table in tables] or None,
    )
