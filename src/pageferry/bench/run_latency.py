# SPDX-License-Identifier: GPL-2.0-only
"""Carrying out `bench latency`: build, run, and make a result of it."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pageferry import __version__, output
from pageferry.bench import latency_checks, latency_plans, writes
from pageferry.bench.execute import Program, execute, shown
from pageferry.bench.latency import Plan
from pageferry.bench.latency_plans import CheckPlan
from pageferry.bench.latency_rows import make_rows
from pageferry.bench.lines import Latency, Line, settings
from pageferry.bench.target import environment_of
from pageferry.errors import unsupported
from pageferry.kernel.build import BuildRequest, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Check, Kernel, Machine, Result, Row
from pageferry.vm import topology

# A run that hangs must end; one that is merely slow must not.
_SLOWEST_BYTES_PER_S = 4_000_000
_TIMEOUT_BASE_S = 300.0


@dataclass(frozen=True)
class Job:
    """A plan, and where it runs. topology None: on this machine."""

    plan: Plan
    topology: str | None
    kernel: BuildRequest
    command: tuple[str, ...]
    # The table that this repeats, and what is compared instead of the plan.
    published: str | None = None
    check: CheckPlan | None = None
    timeout_s: float | None = None

    def simulated(self) -> bool:
        """Say whether DMA channels are simulated there."""
        if self.topology is None:
            return False
        return not topology.load(self.topology).dma_channels


def dry_run(job: Job) -> list[str]:
    """Say what a run would do and write."""
    program = ["latency", *job.plan.arguments(simulated=job.simulated())]
    steps = ["build the programs in bench/"]
    if job.topology is None:
        steps.append("on this machine: " + shlex.join(program))
        steps += [
            *writes.ENGINES,
            "write /sys/kernel/mm/migrate_offload/measure",
            "write /sys/kernel/mm/migrate_offload/"
            "{max_unmapped_us,max_batch_pages,max_windows,streaming}",
            "write /sys/module/dcbm/parameters/timeout_ms, where channels get slow",
            writes.FOLIO_SIZES,
            writes.OTHER_MIGRATION,
            "restore all of them",
            writes.COMPACTED,
            writes.TRACING,
        ]
    else:
        steps += describe(plan_build(job.kernel))
        steps.append(f"boot topology {job.topology}")
        if job.check is not None:
            steps.append("twice more before that, to learn its rates")
        modules = [
            f"--module={name}.ko {parameters}"
            for name, parameters in job.plan.simulated().items()
            if job.simulated()
        ]
        modules += [f"--module={name}.ko" for name in job.plan.modules()]
        steps.append("in it: " + shlex.join([*program, *modules]))
    steps.append(f"keep the result in {store.results_dir()}")
    return steps


def run(job: Job) -> Result:
    """Measure, and give the result with every row verified."""
    begin = time.monotonic_ns()
    if job.plan.rounds < 5:
        output.warn(f"{job.plan.rounds} rounds are few: medians want at least 5")
    plan = job.plan if job.check is None else _calibrated(job, job.check)
    lines, kernel, machine = _measure(job, plan)
    rows = _rows(plan, lines)
    checks: list[Check] | None = None
    if job.check is not None:
        checks = latency_checks.judge(rows)
    tables = []
    if job.published is not None:
        table = published.load(latency_plans.TABLES[job.published])
        tables.append(table.as_json())
    return Result(
        command=list(job.command),
        kernel=kernel,
        machine=machine,
        rows=rows,
        settings=settings(environment_of(lines)),
        created=store.now(),
        pageferry_version=__version__,
        elapsed_ns=time.monotonic_ns() - begin,
        checks=checks,
        published=tables or None,
    )


def _rows(plan: Plan, lines: Sequence[Line]) -> list[Row]:
    return make_rows(plan, [line for line in lines if isinstance(line, Latency)])


def _calibrated(job: Job, check: CheckPlan) -> Plan:
    """Learn this machine's rates, and make the plan that they lead to.

    What is compared is measured again in the run that it is judged by.
    """
    if not job.simulated():
        raise unsupported(
            "--check needs DMA channels whose rate can be set",
            job.topology or "this machine",
            hint="pageferry bench latency --check --vm --topology two-node",
        )
    output.talk("learning the rates of this machine")
    first = replace(job.plan, cases=check.rate_cases(), rounds=3)
    rates = latency_plans.rates_of(check, _rows(first, _measure(job, first)[0]))
    second = replace(job.plan, cases=check.folio_cases(rates), rounds=3)
    known = latency_plans.calibration_of(rates, _rows(second, _measure(job, second)[0]))
    output.talk(
        f"{check.channels} channels of {rates.large_mbps} MB/s for 2M, "
        f"{rates.overlap_mbps} MB/s for 4K to overlap with bookkeeping, else "
        f"{rates.small_mbps}; one folio takes {known.large_ns / 1e3:.0f} us and "
        f"{known.small_ns / 1e3:.0f} us"
    )
    return replace(job.plan, cases=check.cases(known))


def _measure(job: Job, plan: Plan) -> tuple[list[Line], Kernel, Machine]:
    program = Program(
        name="latency",
        arguments=plan.arguments(simulated=job.simulated()),
        modules=plan.modules(),
        simulated=plan.simulated(),
        simulated_apart=True,
    )
    limit_s = job.timeout_s
    if limit_s is None:
        limit_s = _TIMEOUT_BASE_S + plan.seconds(_SLOWEST_BYTES_PER_S)
    with shown(plan.measurements()) as seen:
        return execute(program, job.topology, job.kernel, limit_s, seen)
