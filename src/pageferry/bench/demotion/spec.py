# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pageferry import output
from pageferry.bench import options, tiering, writes
from pageferry.bench.lines import Line
from pageferry.bench.options import option
from pageferry.bench.rows import Rates, compared, counted, rank, rate, total
from pageferry.bench.spec import Benchmark
from pageferry.bench.tiering import ByMethod, Tiering, TierPlan
from pageferry.errors import usage_error
from pageferry.report import published, tables
from pageferry.results import schema
from pageferry.results.schema import Result, Row
from pageferry.results.stats import round_ratios, spread
from pageferry.units import BASE_BYTES, PMD_BYTES, format_size, parse_size

PARTS = ("calls", "reclaim")
SINGLE = "one page per call"
# The order of the 2019 comparison.
METHODS = (SINGLE, "512 pages per call", "one huge page per call")

DESCRIPTION = """\
Move memory to a slower NUMA node in two ways: with calls of move_pages(2) for one
page, 512 pages or one huge page, and by reclaim from a cgroup, which demotes cold
memory. All engines and stock Linux take turns in each round; the first round does
not count. The benchmark counts the node of every page, and verifies every byte.

Runs on this machine if it has both nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench demotion --published
  pageferry bench demotion --parts reclaim --sizes 2M --engines mtcopy --vm
"""

OPTIONS = (
    *tiering.tier_options(),
    option("--parts", "parts of the benchmark", "LIST", ",".join(PARTS)),
    option(
        "--pressure",
        "file that starts reclaim: memory.reclaim, memory.high, or memory.max, "
        "which kills a child of the benchmark each time",
        default="reclaim",
        choices=("reclaim", "high", "max"),
    ),
    option("--call-total", "bytes moved with each kind of call", "SIZE", "4M"),
    options.PUBLISHED,
    *options.ENDING,
)


class Calls(ByMethod, tag="calls", kw_only=True):
    """Memory that moved in calls of move_pages(2) with this list length."""

    folios_per_call: int


class Demotion(Tiering, tag="demotion", kw_only=True):
    """Memory that reclaim moved to a slower node."""

    complete: bool
    # Time until the last page had moved; unknown if the kernel cannot be traced.
    moving_ns: int | None = None
    # Unknown without CONFIG_PSI.
    stall_some_us: int | None = None
    stall_full_us: int | None = None
    pgdemote_kswapd: int | None = None
    pgdemote_direct: int | None = None
    pgdemote_khugepaged: int | None = None
    # memory.reclaim on Linux 7.3. Linux 6.12 counts it as direct.
    pgdemote_proactive: int | None = None


@dataclass(frozen=True, kw_only=True)
class DemotionPlan(TierPlan):
    """The plan of one run."""

    program: ClassVar[str] = "demotion"

    parts: tuple[str, ...] = PARTS
    pressure: Literal["reclaim", "high", "max"] = "reclaim"
    call_bytes: int = 2 * PMD_BYTES

    def arguments(self) -> list[str]:
        """Return the options of bench/demotion."""
        words = super().arguments()
        words += ["--parts=" + ",".join(self.parts), f"--pressure={self.pressure}"]
        return [*words, f"--call-bytes={self.call_bytes}"]

    def kinds(self) -> int:
        """Count the measurements of each variant in a round."""
        kinds = len(self.sizes) if "reclaim" in self.parts else 0
        return kinds + (len(METHODS) if "calls" in self.parts else 0)

    @property
    def each_bytes(self) -> int:
        """Return the largest amount that a measurement moves."""
        return max(self.total_bytes, self.call_bytes)

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        return [
            *super().writes(),
            "write /sys/kernel/mm/numa/demotion_enabled",
            "write /sys/fs/cgroup/cgroup.subtree_control",
            "make a cgroup /sys/fs/cgroup/pageferry-PID, and remove it",
            writes.TRACING,
            "with --pressure max: write /proc/sys/kernel/printk, and have the kernel kill",
            "children of the benchmark for want of memory in that cgroup",
        ]


def parse_call_bytes(text: str) -> int:
    """Parse the amount that each length of list moves."""
    size = parse_size(text)
    if not size or size % PMD_BYTES:
        raise usage_error(
            "--call-total is not a multiple of 2M",
            text,
            "a list has 512 pages of 4K, and a huge page 2M",
        )
    return size


def make_plan(args: argparse.Namespace) -> DemotionPlan:
    """Check the options before any build or boot."""
    return DemotionPlan(
        parts=options.words_of(args.parts, PARTS, "part"),
        pressure=args.pressure,
        call_bytes=parse_call_bytes(args.call_total),
        **tiering.shared(args),
    )


def _moving_ns(sample: ByMethod, *, traced: bool) -> int:
    if traced and isinstance(sample, Demotion) and sample.moving_ns is not None:
        return sample.moving_ns
    return sample.elapsed_ns


def make_rows(_: DemotionPlan, lines: Sequence[Line]) -> list[Row]:
    """Make rows from measurements.

    Reclaim for a limit continues after the last demotion. All times of a result must be
    of the same kind, or their ratios would mean nothing.
    """
    samples = counted(lines, ByMethod)
    demoted = [sample for sample in samples if isinstance(sample, Demotion)]
    traced = all(sample.moving_ns is not None for sample in demoted)

    def figure(sample: ByMethod) -> float:
        return rate(sample, _moving_ns(sample, traced=traced))

    def own(mine: list[ByMethod], rates: Rates) -> dict[str, Any]:
        of_reclaim = [sample for sample in mine if isinstance(sample, Demotion)]
        return _own(of_reclaim, traced=traced) or _of_calls(mine, rates)

    rows = compared("demotion", samples, tiering.kind, own, figure)
    return sorted(rows, key=_order)


def _of_calls(mine: list[ByMethod], rates: Rates) -> dict[str, Any]:
    """Compare with the same engine and one page per call."""
    first = mine[0]
    assert isinstance(first, Calls)
    engine = (first.engine, first.threads, first.channels)
    single = rates.get((SINGLE, BASE_BYTES, *engine), {})
    part = schema.Demotion(
        method=first.method,
        folios_per_call=first.folios_per_call,
        ratio_to_single=round_ratios(rates[*tiering.kind(first), *engine], single),
    )
    return {"demotion": part}


def _own(mine: list[Demotion], *, traced: bool) -> dict[str, Any]:
    if not mine:
        return {}
    some = [s.stall_some_us for s in mine if s.stall_some_us is not None]
    full = [s.stall_full_us for s in mine if s.stall_full_us is not None]
    futile = [s.elapsed_ns - s.moving_ns for s in mine if s.moving_ns is not None]
    return tiering.tier_part(
        *("demotion", mine, sum(sample.moved_bytes for sample in mine)),
        futile_ns=spread(futile) if traced else None,
        stall_some_us=spread(some) if some else None,
        stall_full_us=spread(full) if full else None,
        pgdemote_kswapd=total([s.pgdemote_kswapd for s in mine]),
        pgdemote_direct=total([s.pgdemote_direct for s in mine]),
        pgdemote_khugepaged=total([s.pgdemote_khugepaged for s in mine]),
        pgdemote_proactive=total([s.pgdemote_proactive for s in mine]),
    )


def _order(row: Row) -> tuple[int, ...]:
    """Sort by length of lists, by size, and with the baseline first."""
    engine, *size = rank(row, options.ENGINES)
    if row.demotion.method in METHODS:
        return (0, engine, METHODS.index(row.demotion.method), *size)
    return (1, row.folio_bytes, engine, *size)


def _calls(result: Result, rows: Sequence[Row]) -> str:
    columns = [
        tables.ENGINE,
        ("move_pages(2)", lambda row: row.demotion.method or "-"),
        *tables.rate_columns("MB/s", 1e6, 1),
        (
            "to one page",
            lambda row: tables.ratio(
                row.demotion.ratio_to_single, base=row.demotion.method == SINGLE
            ),
        ),
        tables.TO_STOCK,
    ]
    return (
        f"In calls of move_pages(2), {format_size(rows[0].moved_bytes)} "
        f"{tables.nodes(result)}, median of {tables.rounds(rows[0])}; "
        f"ratios are medians of each round's ratio\n\n{tables.table(rows, columns)}"
    )


def _folios(row: Row) -> str:
    return (
        "-"
        if row.demotion.folios_per_batch is None
        else f"{row.demotion.folios_per_batch:.1f}"
    )


def _demoted(result: Result, rows: Sequence[Row]) -> list[str]:
    columns = [
        *(
            tables.FOLIO,
            tables.ENGINE,
            *tables.rate_columns("MB/s", 1e6, 1),
            tables.TO_STOCK,
        ),
        ("futile us", lambda row: tables.median(row.demotion.futile_ns, 1e3)),
        ("stall us", lambda row: tables.median(row.demotion.stall_some_us)),
        *(tiering.OFFLOADED, ("folios/batch", _folios), tiering.LEFT),
    ]
    parts = [
        f"Demoted by {rows[0].demotion.method} of a cgroup, {format_size(rows[0].moved_bytes)} "
        f"{tables.nodes(result)}, median of {tables.rounds(rows[0])}",
        tables.table(rows, columns),
    ]
    if any(row.demotion.futile_ns is None for row in rows):
        parts.append(
            "It was not traced when the last page had moved: MB/s are of all that "
            "reclaim\ndid, also of what it tried when nothing was left to demote."
        )
    if all(row.demotion.stall_some_us is None for row in rows):
        parts.append("This kernel does not count stalls: it lacks CONFIG_PSI.")
    return parts


def show(result: Result) -> list[str]:
    """Format a whole result."""
    listed = [row for row in result.rows if row.demotion.folios_per_call is not None]
    demoted = [row for row in result.rows if row.demotion.folios_per_call is None]
    return [
        tables.machine_line(result),
        *([_calls(result, listed)] if listed else []),
        *(_demoted(result, demoted) if demoted else []),
        tiering.counted_line(result.rows),
    ]


def show_published() -> str:
    """Format the 2019 comparison in GB/s, as posted."""
    found = published.load("single_vs_list_2019")
    cells = [
        [row["case"], row["migrate_page_gb_per_s"], row["copy_only_gb_per_s"]]
        for row in found.rows
    ]
    body = output.table(["case", "moved, GB/s", "copy alone, GB/s"], cells)
    head = "Published by others, on their machines; GB/s does not compare with ours:"
    return f"{head}\n\n{found.provenance}\n{body}"


SPEC = Benchmark(
    name="demotion",
    about="throughput of demotion to a slower node, and stalls",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology="tiered",
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Calls, Demotion),
    make_rows=make_rows,
    show=show,
    published={True: ("single_vs_list_2019",)},
    show_published=show_published,
)
