# SPDX-License-Identifier: GPL-2.0-only
"""`bench promotion`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pageferry.bench import options, tiering
from pageferry.bench.lines import Line
from pageferry.bench.options import option
from pageferry.bench.rows import Rates, compared, counted, rank, total, touch_of
from pageferry.bench.spec import Benchmark
from pageferry.bench.tiering import Tiering, TierPlan
from pageferry.report import tables
from pageferry.results.schema import Result, Row
from pageferry.results.stats import spread

DESCRIPTION = """\
Touch memory of a slow NUMA node from a CPU of a fast one, until Linux has promoted
it (kernel.numa_balancing=2). The result is the rate of promotion, and the time that
the thread loses. All engines take turns in each round; the first round does not
count. The benchmark counts the node of every page, and verifies every byte.

Runs on this machine if it has both nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench promotion
  pageferry bench promotion --sizes 2M --engines mtcopy --touch read --vm
"""

OPTIONS = (
    *tiering.tier_options("second", "first"),
    option(
        "--touch",
        "kind of access by the thread",
        default="write",
        choices=("read", "write"),
    ),
    options.PUBLISHED,
    *options.ENDING,
)


class Promotion(Tiering, tag="promotion", kw_only=True):
    """Memory that was promoted while a thread touched it."""

    fast_bytes: int
    pgpromote_success: int
    waited_ns: int
    touch: str
    touch_hist: list[int]


@dataclass(frozen=True, kw_only=True)
class PromotionPlan(TierPlan):
    """The plan of one run."""

    program: ClassVar[str] = "promotion"
    # Each measurement waits for a scan by the kernel.
    measurement_s: ClassVar[float] = 60.0

    touch: Literal["read", "write"] = "write"

    def arguments(self) -> list[str]:
        """Return the options of bench/promotion."""
        return [*super().arguments(), f"--touch={self.touch}"]

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        return [
            *super().writes(),
            "write /sys/kernel/debug/sched/numa_balancing/"
            "{scan_delay_ms,scan_period_min_ms,scan_period_max_ms,scan_size_mb,"
            "hot_threshold_ms}, where they are",
        ]


def make_plan(args: argparse.Namespace) -> PromotionPlan:
    """Check the options before any build or boot."""
    return PromotionPlan(touch=args.touch, **tiering.shared(args))


def make_rows(_: PromotionPlan, lines: Sequence[Line]) -> list[Row]:
    """Make rows from measurements."""
    rows = compared("promotion", counted(lines, Promotion), tiering.kind, _own)
    return sorted(rows, key=lambda row: (row.folio_bytes, rank(row, options.ENGINES)))


def _own(mine: list[Promotion], _: Rates) -> dict[str, Any]:
    part = tiering.tier_part(
        *("promotion", mine, sum(sample.fast_bytes for sample in mine)),
        pgpromote_success=total([s.pgpromote_success for s in mine]),
        first_promotion_ns=spread([s.waited_ns for s in mine]),
    )
    return {"touch": touch_of(mine), **part}


COLUMNS: tuple[tables.Column, ...] = (
    *(
        tables.FOLIO,
        tables.ENGINE,
        *tables.rate_columns("MB/s", 1e6, 1),
        tables.TO_STOCK,
    ),
    tables.touched("p99 us", lambda touch: f"{touch.p99_ns / 1e3:.1f}"),
    tables.touched("lost ms", lambda touch: f"{touch.lost_ns.median / 1e6:.1f}"),
    tables.touched("slowest us", lambda touch: f"{touch.slowest_ns / 1e3:.0f}"),
    *(tiering.OFFLOADED, tiering.LEFT),
)


def show(result: Result) -> list[str]:
    """Format a whole result."""
    return [
        tables.machine_line(result),
        f"Promoted by kernel.numa_balancing=2 {tables.nodes(result)}, median of "
        f"{tables.rounds(result.rows[0])}, while a thread touches the memory",
        tables.table(result.rows, COLUMNS),
        tiering.counted_line(result.rows),
    ]


SPEC = Benchmark(
    name="promotion",
    about="throughput of promotion from a slower node, and a program's loss",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology="tiered",
    default_nodes=(1, 0),
    all_in_usage=True,
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Promotion,),
    make_rows=make_rows,
    show=show,
)
