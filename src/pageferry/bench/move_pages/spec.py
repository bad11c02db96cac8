# SPDX-License-Identifier: GPL-2.0-only
"""`bench move-pages`, and its parts that `bench hugetlb` uses."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal

from pageferry.bench import options, writes
from pageferry.bench.lines import Line, Moved
from pageferry.bench.options import option, switch
from pageferry.bench.plan import Plan
from pageferry.bench.rows import LIMIT, Rates, compared, counted, rank
from pageferry.bench.spec import Benchmark
from pageferry.report import published, tables
from pageferry.results.schema import Result, Row
from pageferry.results.stats import round_ratios
from pageferry.units import BASE_BYTES, MIB, PMD_BYTES, format_size

DEFAULT_ENGINES = ("stock", "cpu", "mtcopy")
ENGINES = (*DEFAULT_ENGINES, "off", "dcbm")
# Far below the copy rate of even an emulated CPU, so that the simulated engine limits
# the rate.
DEFAULT_CHANNEL_MBPS = 10

DESCRIPTION = """\
Move memory from one NUMA node to another with move_pages(2), with each copy
engine in turn, and compare with stock Linux and with plain memcpy. All of them
take turns in each round; the first round does not count. The benchmark verifies
the node of every page, and every byte.

Runs on this machine if it has two nodes and pageferry's kernel, else in a
virtual machine."""

EPILOG = """\
examples:
  pageferry bench move-pages
  pageferry bench move-pages --engines mtcopy,dcbm --channels 1,2,4,8,16 --vm
  pageferry bench move-pages --sizes all --engines mtcopy --threads 2,4,8 --live
"""

# `bench move-pages` and `bench hugetlb` share these.
SHARED_OPTIONS = (
    option("--threads", options.THREADS, "LIST", "2"),
    option("--channels", options.CHANNELS, "LIST", "1"),
    option(
        "--channel-mbps",
        "MB/s of each simulated DMA channel; 0: the rate of the CPU",
        *("N", str(DEFAULT_CHANNEL_MBPS)),
    ),
    options.ROUNDS,
    *options.node_options(),
    option(
        "--busy",
        "measure also, or only, with other work on every CPU",
        nargs="?",
        const="both",
        choices=("both", "only"),
    ),
    options.REACH,
    switch("--no-limit", "leave out the plain memcpy"),
    options.LAYOUTS,
    options.TIMEOUT,
    options.PUBLISHED,
    *options.ENDING,
)
OPTIONS = (
    option("--sizes", "folio sizes from 4K to 2M, or all", "LIST", "4K,64K,2M"),
    option(
        "--engines",
        f"some of {', '.join(ENGINES)}; stock is always measured; off "
        "is no engine, but batch_ptes",
        *("LIST", ",".join(DEFAULT_ENGINES)),
    ),
    option("--total", "bytes moved by each call", "SIZE", "256M"),
    *SHARED_OPTIONS,
)


class Measurement(Moved, tag="measurement", kw_only=True):
    """One call of move_pages(2), or one memcpy of the same size."""

    busy: bool
    split_folios: int | None
    engine_bytes: int | None


@dataclass(frozen=True, kw_only=True)
class MovePlan(Plan):
    """The plan of one run."""

    program: ClassVar[str] = "move_pages"

    busy: Literal["no", "only", "both"] = "no"
    with_limit: bool = True
    channel_mbps: int = DEFAULT_CHANNEL_MBPS
    hugetlb: bool = False

    def limits(self) -> list[int]:
        """List the numbers of CPUs for memcpy: those of the variants."""
        if not self.with_limit:
            return []
        threads = self.threads if "mtcopy" in self.engines else ()
        return sorted({1, *threads})

    def words(self) -> list[str]:
        """Return the kernel command line words that reserve large pages at boot."""
        words = []
        for size in self.sizes:
            if size > PMD_BYTES:
                pages = self.total_bytes // size
                on_nodes = f"{self.from_node}:{pages},{self.to_node}:{pages}"
                words += [f"hugepagesz={size // MIB}M", f"hugepages={on_nodes}"]
        return words

    def arguments(self) -> list[str]:
        """Return the options of bench/move_pages."""
        return [
            *(["--hugetlb"] if self.hugetlb else []),
            *self.moving_words(),
            "--limit=" + (",".join(map(str, self.limits())) or "none"),
            f"--busy={self.busy}",
            *self.limit_words(),
        ]

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        columns = len(self.variants()) + len(self.limits())
        states = 2 if self.busy == "both" else 1
        return columns * states * len(self.sizes) * (self.rounds + 1)

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        found = super().writes()
        if self.hugetlb:
            found.append(writes.POOLS)
        if max(self.sizes) > PMD_BYTES:
            found.append(writes.DMA_TIMEOUT)
        return found


def make_plan(args: argparse.Namespace) -> MovePlan:
    """Check the options before any build or boot."""
    return MovePlan(
        sizes=options.parse_sizes(args.sizes),
        engines=options.parse_engines(args.engines, ENGINES),
        total_bytes=options.parse_total(args.total),
        **shared(args),
    )


def shared(args: argparse.Namespace) -> dict[str, Any]:
    """Check the options that `bench move-pages` and `bench hugetlb` share."""
    return {
        **options.nodes_of(args, 1023),
        "threads": options.parse_threads(args.threads),
        "channels": options.parse_channels(args.channels),
        "busy": args.busy or "no",
        "with_limit": not args.no_limit,
        **options.shared(args),
    }


def make_rows(plan: MovePlan, lines: Sequence[Line]) -> list[Row]:
    """Make rows from measurements."""
    rows = compared(
        "hugetlb" if plan.hugetlb else "move-pages",
        counted(lines, Measurement),
        lambda sample: (sample.folio_bytes, sample.busy),
        _of_limit,
    )
    # Sort by size, idle first, and the baseline before the limit.
    order = (*ENGINES, LIMIT)
    return sorted(rows, key=lambda row: (row.folio_bytes, row.busy, rank(row, order)))


def _of_limit(mine: list[Measurement], rates: Rates) -> dict[str, Any]:
    first = mine[0]
    what = (first.folio_bytes, first.busy)
    limits = [key[3] for key in rates if key[:3] == (*what, LIMIT)]
    if first.engine == LIMIT or not limits:
        return {"busy": first.busy}
    # Compare an engine that chooses its threads with the largest number.
    of_limit = first.threads if first.threads in limits else max(limits)
    ours = rates[*what, first.engine, first.threads, first.channels]
    share = round_ratios(ours, rates[*what, LIMIT, of_limit, 0])
    return {
        "busy": first.busy,
        "share_of_limit": share.median if share else None,
        "limit_threads": of_limit,
    }


def _engine(row: Row) -> str:
    name = "memcpy (limit)" if row.engine == LIMIT else row.engine
    return f"{name}, CPUs busy" if row.busy else name


def _share(row: Row) -> str:
    return "-" if row.share_of_limit is None else f"{row.share_of_limit * 100:.0f}%"


def _folios_whole(row: Row) -> str:
    """Return whether the large folios were whole after the move."""
    if row.engine == LIMIT or row.folio_bytes <= BASE_BYTES:
        return "-"
    if row.split_folios is None:
        return "unknown"
    folios = row.moved_bytes // row.folio_bytes * row.rounds
    if not row.split_folios:
        return "all whole"
    return f"split: {row.split_folios} of {folios}"


def _columns(rows: Sequence[Row]) -> list[tables.Column]:
    columns: list[tables.Column] = [tables.FOLIO, ("engine", _engine)]
    columns.append(("threads", lambda row: str(row.threads or "auto")))
    # Most results have no channels.
    if any(row.channels for row in rows):
        columns.append(("channels", lambda row: str(row.channels or "-")))
    columns += [
        *tables.rate_columns("GB/s", 1e9, 2),
        tables.TO_STOCK,
        ("of limit", _share),
    ]
    # hugetlb folios are never split.
    if any(row.bench != "hugetlb" for row in rows):
        columns.append(("folios", _folios_whole))
    return columns


def show(result: Result) -> list[str]:
    """Format a result of `bench move-pages` or `bench hugetlb`."""
    moves = [row for row in result.rows if row.bytes_per_s is not None]
    first = moves[0]
    what = " of hugetlb" if first.bench == "hugetlb" else ""
    return [
        f"{tables.machine_line(result)}\n"
        f"move_pages(2), {format_size(first.moved_bytes)}{what} per call "
        f"{tables.nodes(result)}, median of {tables.rounds(first)}; "
        "ratios are medians of each round's ratio",
        tables.table(moves, _columns(moves)),
        tables.verified_line(moves),
    ]


SPEC = Benchmark(
    name="move-pages",
    about="throughput of move_pages(2), by engine and folio size",
    description=DESCRIPTION,
    epilog=EPILOG,
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Measurement,),
    make_rows=make_rows,
    show=show,
    published={True: published.MOVE_PAGES},
    show_published=published.render_move_pages,
)
