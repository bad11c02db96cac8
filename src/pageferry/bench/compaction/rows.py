# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction`: rows from the program's measurements."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import fmean, median

from pageferry import output
from pageferry.bench.lines import Line, Timed
from pageferry.bench.options import ENGINES
from pageferry.bench.rows import (
    by_round,
    counted,
    make_row,
    offered,
    rank,
    sort_by,
    total,
)
from pageferry.errors import PageferryError
from pageferry.results import schema
from pageferry.results.schema import RatioSpread, Row, Spread
from pageferry.results.stats import round_ratios, spread
from pageferry.units import BASE_BYTES

METHOD = "allocation of 2 MiB"


class Compaction(Timed, tag="compaction", kw_only=True):
    """Huge pages that one CPU allocated on a fragmented node."""

    busy: bool
    # The speed of each simulated channel, where it follows the rate of stock.
    channel_mbps: int | None = None
    total_bytes: int
    asked: int
    allocated: int
    ended: str
    # Earlier attempts that got fewer pages than requested.
    repeated: int = 0
    wall_ns: int
    # CPU time of the allocating thread. The following are times of its CPU, in ticks.
    thread_ns: int
    user_ns: int
    system_ns: int
    idle_ns: int
    steal_ns: int
    hog_iterations: int
    # Right after that, with the whole CPU for the hog.
    alone_iterations: int = 0
    alone_ns: int = 0
    # Differences in /proc/vmstat, of the whole machine. Null: this kernel lacks it.
    pgmigrate_success: int | None = None
    compact_migrate_scanned: int | None = None


def samples_of(lines: Sequence[Line]) -> list[Compaction]:
    """Select the measurements that count."""
    samples = counted(lines, Compaction)
    for sample in samples:
        if sample.wall_ns <= 0 or sample.allocated <= 0:
            raise PageferryError(
                "nothing was allocated, or the clock stood still",
                value=f"{sample.engine}, round {sample.round}",
            )
    return samples


def warn_of_few(lines: Sequence[Line]) -> None:
    """Return whether all samples are complete, and warn about the others."""
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


def _key(sample: Compaction) -> tuple[bool, str, int, int]:
    return (sample.busy, sample.engine, sample.threads, sample.channels)


def _part(samples: Sequence[Compaction], figure: Callable[[Compaction], int]) -> float:
    """Combine all rounds, as one round has few ticks."""
    known = sum(s.user_ns + s.system_ns + s.idle_ns + s.steal_ns for s in samples)
    return sum(figure(sample) for sample in samples) / known if known else 0.0


def _system(sample: Compaction) -> float:
    return _part([sample], lambda s: s.system_ns)


def _channel_mbps(samples: Sequence[Compaction]) -> int | None:
    known = [s.channel_mbps for s in samples if s.channel_mbps is not None]
    return round(median(known)) if known else None


def _ratio(
    mine: Sequence[Compaction],
    stock: Sequence[Compaction],
    figure: Callable[[Compaction], float],
) -> RatioSpread | None:
    base = by_round([sample for sample in stock if figure(sample) > 0], figure)
    return round_ratios(by_round(mine, figure), base)


def _hog_until(
    mine: Sequence[Compaction], stock: Sequence[Compaction]
) -> RatioSpread | None:
    """Compare the hogs' work until stock had its huge pages, in each round.

    With a faster engine, the hog has the CPU alone for the rest of that time.
    """
    walls = {sample.round: sample.wall_ns for sample in stock}

    def done(sample: Compaction) -> float:
        left_ns = walls.get(sample.round, sample.wall_ns) - sample.wall_ns
        if left_ns > 0 and sample.alone_ns:
            alone = sample.alone_iterations / sample.alone_ns
            return sample.hog_iterations + left_ns * alone
        return sample.hog_iterations * (1 + left_ns / sample.wall_ns)

    known = [sample for sample in mine if sample.alone_ns]
    return _ratio(known, stock, done) if known else None


def _spread(values: Sequence[int | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if known and len(known) == len(values) else None


def make_rows(_: object, lines: Sequence[Line]) -> list[Row]:
    """Make rows from measurements."""
    grouped = sort_by(samples_of(lines), _key)
    rows = [
        _row(mine, grouped.get((key[0], "stock", 1, 0), []))
        for key, mine in grouped.items()
    ]
    # Idle first, and the baseline before all others.
    return sorted(rows, key=lambda row: (row.busy, rank(row, ENGINES)))


def _row(mine: Sequence[Compaction], stock: Sequence[Compaction]) -> Row:
    busy = mine[0].busy
    moved = {s.round: (s.pgmigrate_success or 0) * BASE_BYTES for s in mine}
    speed = _ratio(mine, stock, lambda s: s.allocated / s.wall_ns)
    engine_bytes, cpu_bytes = offered(mine)
    share = None
    if engine_bytes is not None and any(moved.values()):
        # Copied folios that moved later, or not at all, make this larger than the moved
        # part.
        share = min(engine_bytes / sum(moved.values()), 1.0)
    return make_row(
        "compaction",
        mine,
        by_round(mine, lambda s: moved[s.round] * 1e9 / s.wall_ns),
        speed,
        channel_mbps=_channel_mbps(mine),
        folio_bytes=BASE_BYTES,
        moved_bytes=round(fmean(moved.values())),
        busy=busy,
        engine_bytes=engine_bytes,
        compaction=schema.Compaction(
            method=METHOD,
            asked_pages=mine[0].asked,
            allocated_pages=spread([s.allocated for s in mine]),
            wall_ns=spread([s.wall_ns for s in mine]),
            wall_ratio_to_stock=_ratio(mine, stock, lambda s: s.wall_ns / s.allocated),
            thread_ns=spread([s.thread_ns for s in mine]),
            thread_ratio_to_stock=_ratio(
                mine, stock, lambda s: s.thread_ns / s.allocated
            ),
            thread_share_to_stock=_ratio(
                mine, stock, lambda s: s.thread_ns / s.wall_ns
            ),
            user_share=_part(mine, lambda s: s.user_ns),
            system_share=_part(mine, lambda s: s.system_ns),
            idle_share=_part(mine, lambda s: s.idle_ns),
            system_share_to_stock=_ratio(mine, stock, _system),
            migrated_pages=_spread([s.pgmigrate_success for s in mine]),
            scanned_pages=_spread([s.compact_migrate_scanned for s in mine]),
            hog_iterations=spread([s.hog_iterations for s in mine]) if busy else None,
            hog_ratio_to_stock=_ratio(
                mine, stock, lambda s: s.hog_iterations / s.wall_ns
            )
            if busy
            else None,
            hog_until_stock_is_done=_hog_until(mine, stock),
            cpu_bytes=cpu_bytes,
            share_offloaded=share,
            folios_per_batch=_per_batch(mine),
        ),
    )


def _per_batch(mine: Sequence[Compaction]) -> float | None:
    offered = total([sample.offered_folios for sample in mine])
    batches = total([sample.batches for sample in mine])
    return offered / batches if offered and batches else None
