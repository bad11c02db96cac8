# SPDX-License-Identifier: GPL-2.0-only
"""The common part of making rows from measurements."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import fmean, median
from typing import Any, TypeVar

from pageferry.bench.lines import Line, Moved, Timed
from pageferry.errors import PageferryError
from pageferry.results.schema import RatioSpread, Row, Touch
from pageferry.results.stats import round_ratios, spread
from pageferry.sysfs import histogram
from pageferry.units import format_size

L = TypeVar("L", bound=Line)
T = TypeVar("T", bound=Timed)
M = TypeVar("M", bound=Moved)
Key = tuple[Any, ...]
# By kind, engine, threads and channels, and by round.
Rates = Mapping[Key, dict[int, float]]
# A plain copy in user space, without a migration.
LIMIT = "limit"


def counted(lines: Sequence[Line], kind: type[T]) -> list[T]:
    """Select the rounds that count: all but the warm-up."""
    found = [line for line in lines if isinstance(line, kind)]
    for sample in found:
        if not sample.verified:
            raise PageferryError("a measurement was not verified", value=sample.engine)
    return [sample for sample in found if sample.round > 0]


def sort_by(samples: Sequence[L], key: Callable[[L], Key]) -> dict[Key, list[L]]:
    """Sort by kind, in the order of the first measurement of each."""
    found: dict[Key, list[L]] = {}
    for sample in samples:
        found.setdefault(key(sample), []).append(sample)
    return found


def rate(sample: Moved, elapsed_ns: int | None = None) -> float:
    """Return bytes per second."""
    elapsed_ns = sample.elapsed_ns if elapsed_ns is None else elapsed_ns
    if elapsed_ns <= 0:
        raise PageferryError(
            "the clock stood still during a move",
            value=f"{sample.engine}, {format_size(sample.folio_bytes)}",
        )
    return sample.moved_bytes * 1e9 / elapsed_ns


def by_round(samples: Sequence[T], figure: Callable[[T], float]) -> dict[int, float]:
    """Return a figure of each round."""
    return {sample.round: figure(sample) for sample in samples}


def total(values: Sequence[int | None]) -> int | None:
    """Add up known values; one unknown value makes the sum unknown."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def make_row(
    bench: str,
    mine: Sequence[Timed],
    rates: Mapping[int, float],
    ratio: RatioSpread | None,
    **more: Any,  # noqa: ANN401
) -> Row:
    """Make a row from samples of one engine and the given fields."""
    first = mine[0]
    return Row(
        bench=bench,
        engine=first.engine,
        channels=first.channels,
        threads=first.threads,
        rounds=len(mine),
        verified=True,
        bytes_per_s=spread(list(rates.values())),
        ratio_to_stock=None if ratio is None else ratio.median,
        ratio_to_stock_spread=ratio,
        **more,
    )


def compared(
    bench: str,
    samples: Sequence[M],
    kind: Callable[[M], Key],
    own: Callable[[list[M], Rates], dict[str, Any]] = lambda *_: {},
    figure: Callable[[M], float] = rate,
) -> list[Row]:
    """Make a row for each kind of move and engine, and compare it with stock.

    `own` returns further fields, `figure` the rate.
    """

    def key(sample: M) -> Key:
        return (*kind(sample), sample.engine, sample.threads, sample.channels)

    grouped = sort_by(samples, key)
    rates = {which: by_round(mine, figure) for which, mine in grouped.items()}
    rows = []
    for (*what, engine, _, _), mine in grouped.items():
        mine_rates = rates[key(mine[0])]
        ratio = round_ratios(mine_rates, rates.get((*what, "stock", 1, 0), {}))
        row = make_row(
            *(bench, mine, mine_rates, None if engine == LIMIT else ratio),
            folio_bytes=mine[0].folio_bytes,
            moved_bytes=round(fmean(sample.moved_bytes for sample in mine)),
            split_folios=total([sample.split_folios for sample in mine]),
            engine_bytes=offered(mine)[0],
            **own(mine, rates),
        )
        rows.append(row)
    return rows


def rank(row: Row, order: Sequence[str]) -> tuple[int, int, int]:
    """Return the place of an engine: the baseline comes first."""
    known = order.index(row.engine) if row.engine in order else len(order)
    return known, row.threads, row.channels


def touch_of(mine: Sequence[Moved]) -> Touch | None:
    """Return the time that a touching thread lost, in all rounds."""
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


def offered(mine: Sequence[Timed]) -> tuple[int | None, int | None]:
    """Return the bytes copied by an engine, and by the CPU. Null: no engine."""
    if mine[0].engine in ("stock", "off"):
        return None, None
    return total([s.engine_bytes for s in mine]), total([s.cpu_bytes for s in mine])
