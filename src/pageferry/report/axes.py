# SPDX-License-Identifier: GPL-2.0-only
"""Settings and figures that charts show, and lines of one over the other."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from pageferry.report import difference
from pageferry.report.svg import Line, Lines, Value
from pageferry.results.schema import RatioSpread, Row, Spread
from pageferry.units import BASE_BYTES, format_size

# The reader cannot follow more lines. The table below has all rows.
_MOST_LINES = 8


@dataclass(frozen=True)
class Axis:
    """A setting: how to read and write it, and its column in published tables."""

    key: str
    short: str
    name: str
    read: Callable[[Row], int | None]
    show: Callable[[int], str]
    published: str = ""


@dataclass(frozen=True)
class Figure:
    """A figure of rows, and its column in published tables."""

    key: str
    name: str
    unit: str
    read: Callable[[Row], Value | None]
    published: str = ""


@dataclass(frozen=True)
class Series:
    """Values by their setting."""

    name: str
    values: dict[int, Value] = field(default_factory=dict)
    published: bool = False


def scaled(found: Spread | RatioSpread, scale: float) -> Value:
    """Write a figure in another unit."""
    return Value(found.median / scale, found.min / scale, found.max / scale)


def value(found: Spread | RatioSpread | None, scale: float = 1) -> Value | None:
    """Write a figure in another unit, if there is one."""
    return None if found is None else scaled(found, scale)


def _of(figure: difference.Figure) -> Callable[[Row], Value | None]:
    return lambda row: value(figure.read(row), figure.scale)


def for_each_page(row: Row) -> Value | None:
    """Count instructions for 4 KiB, so that folios of all sizes compare."""
    return value(_INSTRUCTIONS.read(row), row.folio_bytes / BASE_BYTES)


def _first(row: Row) -> Value | None:
    times = row.unmapped_ns
    return None if times is None else value(difference.single(times.first), 1e3)


def _limit(us: int) -> str:
    return f"{us:,}" if us else "none"


def _channels(row: Row) -> int | None:
    return row.channels or None


FOLIO = Axis(
    "folio", "folio size", "folio size", lambda row: row.folio_bytes, format_size
)
SIZE = Axis(
    "size", "size", "bytes of a list", lambda row: row.scale.size_bytes, format_size
)
MOVERS = Axis("movers", "movers", "movers at once", lambda row: row.scale.movers, str)
CHANNELS = Axis("channels", "channels", "DMA channels", _channels, str)
CAP = Axis(
    "cap",
    "batch size",
    "pages in a batch, at most",
    lambda row: row.latency.batch_cap_pages,
    "{:,}".format,
    "batch_cap_pages",
)
LIMIT = Axis(
    "limit",
    "limit",
    "limit of the unmapped time, us",
    lambda row: row.latency.max_unmapped_us,
    _limit,
)

_RATE, _UNMAPPED, _INSTRUCTIONS, *_ = difference.FIGURES
THROUGHPUT = Figure("throughput", "Throughput", "GB/s", _of(_RATE), "gb_per_s")
UNMAPPED = Figure("unmapped", "p99 of the unmapped time", "us", _of(_UNMAPPED))
FIRST = Figure("first", "Time to the first folio", "us", _first, "first_folio_us")
INSTRUCTIONS = Figure("instructions", "Instructions", "for each 4 KiB", for_each_page)
RATIO = Figure(
    "beside",
    "Times stock Linux, beside published figures",
    "x",
    lambda row: value(row.ratio_to_stock_spread),
)


def lines(
    figure: Figure,
    axis: Axis,
    series: Sequence[Series],
    *,
    key: str,
    title: str,
    levels: Mapping[str, Value] | None = None,
) -> list[Lines]:
    """Make a chart, if a line has two points and the reader can follow all lines."""
    levels = levels or {}
    few = all(len(one.values) < 2 for one in series)
    if few or len(series) + len(levels) > _MOST_LINES:
        return []
    order = sorted({place for one in series for place in one.values})
    if axis is LIMIT and order[0] == 0:
        # Without a limit comes after the longest limit.
        order = [*order[1:], 0]
    drawn = [
        Line(
            one.name,
            tuple((at, one.values[p]) for at, p in enumerate(order) if p in one.values),
            published=one.published,
        )
        for one in series
    ]
    drawn += [Line(name, ((0, at),), level=True) for name, at in levels.items()]
    places = tuple(map(axis.show, order))
    return [Lines(key, title, figure.unit, axis.name, places, tuple(drawn))]
