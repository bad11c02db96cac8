# SPDX-License-Identifier: GPL-2.0-only
"""Carrying out `bench move-pages` and `hugetlb`: build, run, make a result of it."""

from __future__ import annotations

import shlex
import time
from dataclasses import dataclass

from pageferry import __version__, output
from pageferry.bench import writes
from pageferry.bench.execute import Program, execute, shown
from pageferry.bench.layouts import boots, noted
from pageferry.bench.lines import Measurement, settings
from pageferry.bench.move_pages import HUGETLB, PMD_BYTES, Plan, make_rows
from pageferry.bench.target import environment_of
from pageferry.kernel.build import BuildRequest, describe, plan_build
from pageferry.report import published
from pageferry.results import store
from pageferry.results.schema import Result

# A run that hangs must end; one that is merely slow must not. Emulation on a
# busy host moves no less than this.
_SLOWEST_BYTES_PER_S = 4_000_000
_TIMEOUT_BASE_S = 300.0


_TIMEOUT = ("write /sys/module/dcbm/parameters/timeout_ms",)
_POOLS = ("write /sys/devices/system/node/node*/hugepages/hugepages-*kB/nr_hugepages",)


@dataclass(frozen=True)
class Job:
    """A plan, and where it runs. topology None: on this machine."""

    plan: Plan
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
        moved = self.plan.measurements() * self.plan.total_bytes
        return _TIMEOUT_BASE_S + moved / _SLOWEST_BYTES_PER_S


def dry_run(job: Job) -> list[str]:
    """Say what a run would do and write."""
    program = ["move_pages", *job.plan.arguments()]
    steps = ["build the programs in bench/"]
    if job.topology is None:
        steps.append("on this machine: " + shlex.join(program))
        steps += [
            *writes.ENGINES,
            writes.FOLIO_SIZES,
            writes.OTHER_MIGRATION,
            *writes.of_limit(job.plan.max_unmapped_us),
            *(_POOLS if job.plan.bench == HUGETLB else ()),
            *(_TIMEOUT if max(job.plan.sizes) > PMD_BYTES else ()),
            "restore all of them",
            writes.COMPACTED,
        ]
    else:
        steps += describe(plan_build(job.kernel))
        words = " ".join(["", *job.plan.words()])
        steps.append(boots(job.topology + words, job.layouts))
        modules = [
            f"--module={name}.ko {parameters}"
            for name, parameters in job.plan.simulated().items()
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
    program = Program(
        name="move_pages",
        arguments=job.plan.arguments(),
        modules=job.plan.modules(),
        simulated=job.plan.simulated(),
        words=job.plan.words(),
    )
    with shown(job.plan.measurements() * job.layouts) as seen:
        lines, kernel, machine = execute(
            *(program, job.topology, job.kernel),
            *(job.limit_s(), seen, job.layouts),
        )
    measured = [line for line in lines if isinstance(line, Measurement)]
    tables = published.move_pages_tables() if job.with_published else []
    return Result(
        command=list(job.command),
        kernel=kernel,
        machine=machine,
        rows=noted(make_rows(measured, job.plan.bench), job.layouts),
        settings=settings(environment_of(lines)),
        created=store.now(),
        pageferry_version=__version__,
        elapsed_ns=time.monotonic_ns() - begin,
        published=[table.as_json() for table in tables] or None,
    )
