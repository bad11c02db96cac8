# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`: rows from measurements, and the knee of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from pageferry.bench.latency.cases import Case, LatencyPlan
from pageferry.bench.lines import Line, Moved
from pageferry.bench.rows import (
    by_round,
    counted,
    make_row,
    rate,
    sort_by,
    total,
    touch_of,
)
from pageferry.errors import PageferryError
from pageferry.results import schema
from pageferry.results.schema import Row, Slowed, Unmapped, Waited
from pageferry.results.stats import round_ratios, spread
from pageferry.sysfs import histogram
from pageferry.units import format_size

# The knee of a sweep of caps is the smallest with this share of the best rate.
KNEE_SHARE = 0.9


class Latency(Moved, tag="latency", kw_only=True):
    """One call of move_pages(2), and the unmapped times of its folios."""

    case: int
    # Unknown without an engine.
    batch_cap_pages: int | None = None
    max_windows: int | None = None
    streaming: bool | None = None
    max_unmapped_us: int | None = None
    default_limit: bool | None = None
    channel_mbps: int | None = None
    cpu_share: bool | None = None
    first_ns: int | None = None
    # Unknown on a kernel without histograms.
    over_limit_folios: int | None = None
    unmapped_folios: int | None = None
    unmapped_sum_ns: int | None = None
    unmapped_max_ns: int | None = None
    unmapped_hist: list[int] | None = None
    waited_threads: int | None = None
    waited_sum_ns: int | None = None
    waited_max_ns: int | None = None
    waited_hist: list[int] | None = None
    # Only with slowed channels.
    slow_seen: bool = False
    slow_skipped_windows: int = 0


def make_rows(plan: LatencyPlan, lines: Sequence[Line]) -> list[Row]:
    """Make rows from measurements, in the order of the cases.

    Leave out cases whose folio size the kernel lacks.
    """
    samples = sort_by(counted(lines, Latency), lambda sample: (sample.case,))
    rates = {key: by_round(mine, rate) for key, mine in samples.items()}
    rows = []
    for index, case in enumerate(plan.cases):
        mine = samples.get((index,))
        if mine:
            base = rates.get((_baseline(plan, case),), {})
            rows.append(_row(case, mine, rates[index,], base))
    return mark_knees(rows)


def _baseline(plan: LatencyPlan, case: Case) -> int | None:
    """Find stock with the same memory and the same toucher."""
    wanted = (case.folio_bytes, case.total_bytes, case.touch)
    for index, other in enumerate(plan.cases):
        same = (other.folio_bytes, other.total_bytes, other.touch)
        if other.engine == "stock" and same == wanted:
            return index
    return None


def _row(
    case: Case,
    mine: Sequence[Latency],
    rates: dict[int, float],
    base: dict[int, float],
) -> Row:
    first = mine[0]
    unmapped = [found for s in mine if (found := unmapped_of(s)) is not None]
    complete = len(unmapped) == len(mine)
    over = [s.over_limit_folios for s in mine if s.over_limit_folios is not None]
    # A window is a batch. Linux itself has no counter.
    windows = [s.batches for s in mine if s.max_windows and s.batches is not None]
    return make_row(
        *("latency", mine, rates, round_ratios(rates, base)),
        folio_bytes=first.folio_bytes,
        moved_bytes=first.moved_bytes,
        split_folios=total([s.split_folios for s in mine]),
        engine_bytes=total([s.engine_bytes for s in mine]),
        unmapped_ns=_each(unmapped, median) if complete else None,
        touch=touch_of(mine) if case.touch != "none" else None,
        channel_mbps=first.channel_mbps,
        latency=schema.Latency(
            unmapped_ns_min=_each(unmapped, min) if complete else None,
            unmapped_ns_max=_each(unmapped, max) if complete else None,
            waited_ns=_waited(mine),
            slowed=_slowed(case, mine),
            batch_cap_pages=first.batch_cap_pages,
            max_windows=first.max_windows,
            streaming=first.streaming,
            max_unmapped_us=first.max_unmapped_us,
            default_limit=first.default_limit,
            windows=spread(windows) if windows else None,
            over_limit_folios=sum(over) if over else None,
            cpu_share=first.cpu_share,
            role=case.role,
        ),
    )


def unmapped_of(sample: Latency) -> Unmapped | None:
    """Return the unmapped times of one call's folios."""
    if sample.unmapped_hist is None or not sample.unmapped_folios:
        return None
    hist = histogram.from_pairs(sample.unmapped_hist, sample.unmapped_max_ns)
    p50, p99, last = hist.percentile(50), hist.percentile(99), hist.longest
    if sample.unmapped_sum_ns is None or p50 is None or p99 is None or last is None:
        return None
    return Unmapped(
        first=sample.first_ns,
        mean=round(sample.unmapped_sum_ns / sample.unmapped_folios),
        p50=p50,
        p99=p99,
        last=last,
    )


def _each(
    found: Sequence[Unmapped], take: Callable[[list[int]], float]
) -> Unmapped | None:
    """Return the median, or the extreme, of each figure."""
    if not found:
        return None
    firsts = [one.first for one in found if one.first is not None]
    return Unmapped(
        first=round(take(firsts)) if firsts else None,
        mean=round(take([one.mean for one in found])),
        p50=round(take([one.p50 for one in found if one.p50 is not None])),
        p99=round(take([one.p99 for one in found])),
        last=round(take([one.last for one in found])),
    )


def _waited(mine: Sequence[Latency]) -> Waited | None:
    threads = [s.waited_threads for s in mine if s.waited_threads is not None]
    sums = [s.waited_sum_ns for s in mine if s.waited_sum_ns is not None]
    if not threads or not sums:
        return None
    hists = [
        histogram.from_pairs(s.waited_hist, s.waited_max_ns)
        for s in mine
        if s.waited_hist
    ]
    p99 = [value for h in hists if (value := h.percentile(99)) is not None]
    last = [value for h in hists if (value := h.longest) is not None]
    return Waited(
        threads=round(median(threads)),
        sum=round(median(sums)),
        p99=round(median(p99)) if p99 else None,
        last=round(median(last)) if last else None,
    )


def _slowed(case: Case, mine: Sequence[Latency]) -> Slowed | None:
    if case.slow is None:
        return None
    if not all(s.slow_seen for s in mine):
        raise PageferryError(
            "the move ended before the channels had been slow for long enough",
            reason=case.role,
            value=f"{format_size(case.total_bytes)} in {format_size(case.folio_bytes)}",
            hint="move more with --total, or slow down earlier",
        )
    return Slowed(
        after_percent=case.slow[0],
        factor=case.slow[1],
        skipped_windows=max(s.slow_skipped_windows for s in mine),
    )


def knee(rates: Sequence[tuple[int, float]]) -> int | None:
    """Return the smallest cap with 90% of the best rate; one cap has no knee."""
    if len({cap for cap, _ in rates}) < 2:
        return None
    best = max(rate for _, rate in rates)
    return min(cap for cap, rate in rates if rate >= KNEE_SHARE * best)


def mark_knees(rows: Sequence[Row]) -> list[Row]:
    """Mark the row of each sweep of caps that is its knee."""
    sweeps: dict[object, list[tuple[int, float]]] = {}
    for row in rows:
        cap = row.latency.batch_cap_pages
        if cap is not None and row.bytes_per_s is not None:
            point = (cap, float(row.bytes_per_s.median))
            sweeps.setdefault(_sweep_of(row), []).append(point)
    found = []
    for row in rows:
        cap = knee(sweeps.get(_sweep_of(row), []))
        mark = None if cap is None else row.latency.batch_cap_pages == cap
        part = msgspec.structs.replace(row.latency, knee=mark)
        found.append(msgspec.structs.replace(row, latency=part))
    return found


def _sweep_of(row: Row) -> object:
    """Return the common settings of one sweep of caps."""
    own = row.latency
    limit = "default" if own.default_limit else own.max_unmapped_us
    return (
        *(row.engine, row.channels, row.threads, row.folio_bytes, row.moved_bytes),
        *(own.max_windows, own.streaming, limit, row.channel_mbps),
        *(row.touch is None, own.slowed is None),
    )
