# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`: rows from what the program measured, and the knee of a sweep."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from statistics import median

import msgspec

from pageferry.bench.latency import BENCH, Case, Plan
from pageferry.bench.lines import Latency, Promotion
from pageferry.bench.move_pages import BASE_BYTES
from pageferry.errors import PageferryError
from pageferry.results.schema import Row, Slowed, Touch, Unmapped, Waited
from pageferry.results.stats import round_ratios, spread
from pageferry.sysfs import histogram
from pageferry.units import format_size

# The knee of a sweep of caps is the smallest with this share of the best rate.
KNEE_SHARE = 0.9


def make_rows(plan: Plan, lines: Sequence[Latency]) -> list[Row]:
    """Turn measurements into rows, in the order of the cases.

    The warm-up round does not count. A case whose folio size the kernel does
    not have is left out.
    """
    rows = []
    for index, case in enumerate(plan.cases):
        mine = [line for line in lines if line.case == index and line.round > 0]
        if mine:
            base = _baseline(plan, case, lines)
            rows.append(_row(case, mine, base))
    return mark_knees(rows)


def _rates(samples: Sequence[Latency]) -> dict[int, float]:
    for sample in samples:
        if not sample.verified:
            raise PageferryError("a measurement was not verified", value=sample.engine)
        if sample.elapsed_ns <= 0:
            raise PageferryError(
                "the clock stood still during a move",
                value=f"{sample.engine}, {format_size(sample.folio_bytes)}",
            )
    return {s.round: s.moved_bytes * 1e9 / s.elapsed_ns for s in samples}


def _baseline(plan: Plan, case: Case, lines: Sequence[Latency]) -> dict[int, float]:
    """Find stock's rates with the same memory and the same toucher."""
    for index, other in enumerate(plan.cases):
        same = (other.folio_bytes, other.total_bytes, other.touch)
        if other.engine == "stock" and same == (
            case.folio_bytes,
            case.total_bytes,
            case.touch,
        ):
            return _rates([s for s in lines if s.case == index and s.round > 0])
    return {}


def _row(case: Case, mine: Sequence[Latency], base: dict[int, float]) -> Row:
    first = mine[0]
    series = _rates(mine)
    ratio = round_ratios(series, base)
    unmapped = [found for s in mine if (found := unmapped_of(s)) is not None]
    complete = len(unmapped) == len(mine)
    over = [s.over_limit_folios for s in mine if s.over_limit_folios is not None]
    # Linux itself counts none.
    windows = [s.windows or 0 for s in mine if s.max_windows and s.windows is not None]
    return Row(
        bench=BENCH,
        engine=first.engine,
        channels=first.channels,
        threads=first.threads,
        folio_bytes=first.folio_bytes,
        moved_bytes=first.moved_bytes,
        rounds=len(mine),
        verified=True,
        split_folios=_total([s.split_folios for s in mine]),
        engine_bytes=_total([s.engine_bytes for s in mine]),
        bytes_per_s=spread(list(series.values())),
        ratio_to_stock=None if ratio is None else ratio.median,
        ratio_to_stock_spread=ratio,
        unmapped_ns=_each(unmapped, median) if complete else None,
        unmapped_ns_min=_each(unmapped, min) if complete else None,
        unmapped_ns_max=_each(unmapped, max) if complete else None,
        waited_ns=_waited(mine),
        touch=touch_of(mine) if case.touch != "none" else None,
        slowed=_slowed(case, mine),
        batch_cap_pages=first.batch_cap_pages,
        max_windows=first.max_windows,
        streaming=first.streaming,
        max_unmapped_us=first.max_unmapped_us,
        default_limit=first.default_limit,
        windows=spread(windows) if windows else None,
        over_limit_folios=sum(over) if over else None,
        channel_mbps=first.channel_mbps,
        cpu_share=first.cpu_share,
        role=case.role,
    )


def _total(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def unmapped_of(sample: Latency) -> Unmapped | None:
    """Say how long the folios of one call were out of reach."""
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
    """Take the median, or the extreme, of each figure."""
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


def touch_of(mine: Sequence[Latency | Promotion]) -> Touch | None:
    touched = [s for s in mine if s.touch is not None]
    if not touched:
        return None
    hists = [histogram.from_pairs(s.touch_hist or [], s.touch_slowest_ns) for s in mine]
    p99 = [value for h in hists if (value := h.percentile(99)) is not None]
    return Touch(
        mode="write" if touched[0].touch == "write" else "read",
        touches=spread([s.touches for s in touched]),
        quiet_ns=round(median(s.touch_quiet_ns for s in touched)),
        threshold_ns=max(s.touch_threshold_ns for s in touched),
        p99_ns=round(median(p99)) if p99 else 0,
        slowest_ns=max(s.touch_slowest_ns for s in touched),
        slow=sum(s.touch_slow for s in touched),
        slept=sum(s.touch_slept for s in touched),
        lost_ns=spread([s.touch_lost_ns for s in touched]),
        lost_ns_all=sum(s.touch_lost_ns for s in touched),
        slept_ns_all=sum(s.touch_slept_ns for s in touched),
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
    """Give the smallest cap with 90% of the best rate; one cap has none."""
    if len({cap for cap, _ in rates}) < 2:
        return None
    best = max(rate for _, rate in rates)
    return min(cap for cap, rate in rates if rate >= KNEE_SHARE * best)


def mark_knees(rows: Sequence[Row]) -> list[Row]:
    """Say of each row of a sweep of caps whether it is its knee."""
    sweeps: dict[object, list[tuple[int, float]]] = {}
    for row in rows:
        if row.batch_cap_pages is not None and row.bytes_per_s is not None:
            point = (row.batch_cap_pages, float(row.bytes_per_s.median))
            sweeps.setdefault(_sweep_of(row), []).append(point)
    found = []
    for row in rows:
        cap = knee(sweeps.get(_sweep_of(row), []))
        mark = None if cap is None else row.batch_cap_pages == cap
        found.append(msgspec.structs.replace(row, knee=mark))
    return found


def _sweep_of(row: Row) -> object:
    """Give all that is the same in one sweep of caps."""
    limit = "default" if row.default_limit else row.max_unmapped_us
    return (
        *(row.engine, row.channels, row.threads, row.folio_bytes, row.moved_bytes),
        *(row.max_windows, row.streaming, limit, row.channel_mbps),
        *(row.touch is None, row.slowed is None),
    )


def moved_pages(rows: Sequence[Row]) -> int:
    """Count the pages of 4 KiB that were moved and verified."""
    return sum(row.moved_bytes // BASE_BYTES * row.rounds for row in rows)
