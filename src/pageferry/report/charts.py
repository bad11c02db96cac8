# SPDX-License-Identifier: GPL-2.0-only
"""Which charts a result has: by the settings that differ between its rows."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry.report import theirs
from pageferry.report.axes import (
    CAP,
    CHANNELS,
    FIRST,
    FOLIO,
    INSTRUCTIONS,
    LIMIT,
    MOVERS,
    RATIO,
    SIZE,
    THROUGHPUT,
    UNMAPPED,
    Axis,
    Figure,
    Series,
    for_each_page,
    lines,
    scaled,
)
from pageferry.report.difference import label, settings
from pageferry.report.svg import Bar, Bars, Chart, Line, Lines, Value, number, said
from pageferry.results.schema import Result, Row
from pageferry.units import BASE_BYTES, format_size

# Times over the number of channels repeat the shape of the throughput.
_PAIRS: tuple[tuple[Figure, Axis], ...] = (
    (THROUGHPUT, FOLIO),
    (INSTRUCTIONS, FOLIO),
    (THROUGHPUT, CHANNELS),
    (THROUGHPUT, CAP),
    (UNMAPPED, CAP),
    (FIRST, CAP),
    (THROUGHPUT, LIMIT),
    (UNMAPPED, LIMIT),
    (INSTRUCTIONS, SIZE),
    (INSTRUCTIONS, MOVERS),
)
# The key of a chart's panel, the end of its title, and its rows.
_Panel = tuple[str, str, list[Row]]


def charts(result: Result, tables: Sequence[theirs.Table]) -> list[Chart]:
    """Choose the charts of a result, with published tables beside its own figures."""
    made: list[Chart] = []
    for figure, axis in _PAIRS:
        ours = _over(result.rows, figure, axis)
        made += [*ours, *(theirs.same(tables, figure, axis) if ours else [])]
    if not any(chart.key.startswith(THROUGHPUT.key) for chart in made):
        made += _throughput(result.rows)
    made += _phases(result.rows)
    made += _cpu_time(result.rows)
    made += _distribution(result.rows)
    made += _over_time(result.rows)
    return [*made, *_beside(result.rows, tables)]


def _panels(rows: Sequence[Row]) -> list[_Panel]:
    """Divide rows by folio size, if sizes differ."""
    sizes = sorted({row.folio_bytes for row in rows})
    if len(sizes) == 1:
        return [("", "", list(rows))]
    return [
        (
            f"-{format_size(size).replace(' ', '')}",
            f", folios of {format_size(size)}",
            [row for row in rows if row.folio_bytes == size],
        )
        for size in sizes
    ]


def _memories(rows: Sequence[Row]) -> list[_Panel]:
    """Divide rows of `bench copy` by what the caches have of the memory."""
    kinds = dict.fromkeys(row.copy.memory for row in rows)
    return [
        (
            f"-{kind}" if kind else "",
            f", memory: {kind}" if kind else "",
            [row for row in rows if row.copy.memory == kind],
        )
        for kind in kinds
    ]


def _same(rows: Sequence[Row]) -> list[str]:
    """List settings that all rows share, so that names can leave them out."""
    texts = [settings(row) for row in rows]
    # Rows of stock Linux have no settings of an engine.
    shared = [n for n in texts[0] if len({text[n] for text in texts} - {""}) < 2]
    return [name for name in shared if name not in ("engine", "busy", "role")]


def _series(
    rows: Sequence[Row], figure: Figure, axis: Axis
) -> tuple[list[Series], dict[str, Value]]:
    """Divide rows into lines over an axis, and levels without a place on the axis."""
    found: dict[str, Series] = {}
    levels: dict[str, Value] = {}
    for row in rows:
        value, place = figure.read(row), axis.read(row)
        if value is None:
            continue
        name = label(row, axis.key, "pages", *_same(rows))
        if place is None:
            levels.setdefault(name, value)
        else:
            found.setdefault(name, Series(name)).values.setdefault(place, value)
    return list(found.values()), levels


def _over(rows: Sequence[Row], figure: Figure, axis: Axis) -> list[Chart]:
    """Draw a figure over an axis, with a line for all that differs besides."""
    # Pages at random places have no counterpart among large folios.
    whole = [row for row in rows if row.pages != "random"]
    if axis in (SIZE, MOVERS):
        # Rows of the other have no counterpart, either.
        whole = [row for row in whole if axis.read(row) is not None]
        panels: list[_Panel] = [("", "", whole)]
    else:
        panels = _memories(whole) if axis is FOLIO else _panels(rows)
    made: list[Chart] = []
    for suffix, title, panel in panels:
        found, levels = _series(panel, figure, axis)
        made += lines(
            figure,
            axis,
            found,
            key=f"{figure.key}-over-{axis.key}{suffix}",
            title=f"{figure.name} over {axis.short}{title}",
            levels=levels,
        )
    return made


def _throughput(rows: Sequence[Row]) -> list[Chart]:
    """Draw a bar for each row."""
    found = [(label(row, *_same(rows)), THROUGHPUT.read(row)) for row in rows]
    bars = [
        Bar(name, said(value), (value.median,), value)
        for name, value in found
        if value is not None
    ]
    if not bars:
        return []
    return [Bars(THROUGHPUT.key, THROUGHPUT.name, THROUGHPUT.unit, tuple(bars))]


def _phases(rows: Sequence[Row]) -> list[Chart]:
    """Divide instructions into the copy and all else."""
    bars = []
    for row in rows:
        whole = for_each_page(row)
        # The rows of `bench scale` are of one phase.
        if whole is None or row.bench == "scale":
            continue
        # Without a count of the copy, the engine copied.
        copy = (row.copy_instructions or 0) * BASE_BYTES / row.folio_bytes
        besides = max(whole.median - copy, 0)
        text = f"{number(besides)} + {number(copy)}" if copy else number(besides)
        bars.append(Bar(label(row), text, (besides, copy)))
    if not bars:
        return []
    parts = ("unmap, move, map", "copy by the CPU")
    title, unit = "Cost of each phase", "instructions for each 4 KiB"
    return [Bars("phases", title, unit, tuple(bars), parts)]


def _cpu_time(rows: Sequence[Row]) -> list[Chart]:
    """Divide the time of the CPU that compaction ran on."""
    bars = []
    for row in rows:
        own = row.compaction
        if own.system_share is None or own.wall_ns is None:
            continue
        wall = own.wall_ns.median / 1e6
        shares = (own.system_share, own.user_share or 0, own.idle_share or 0)
        text = f"{number(wall)} ms, kernel {own.system_share:.0%}"
        name = label(row, "method", *_same(rows))
        bars.append(Bar(name, text, tuple(wall * share for share in shares)))
    if not bars:
        return []
    title = "Time until the memory was there, and the CPU meanwhile"
    return [Bars("cpu-time", title, "ms", tuple(bars), ("kernel", "hog", "idle"))]


def _distribution(rows: Sequence[Row]) -> list[Chart]:
    """Show the unmapped times of each row, up to the longest."""
    measured = [row for row in rows if row.unmapped_ns is not None]
    return [
        Bars(
            f"distribution{suffix}",
            f"Unmapped time of folios{title}",
            "us",
            tuple(_times(row, _same(panel)) for row in panel),
            marks=("p50", "mean", "p99", "longest"),
            log=True,
        )
        for suffix, title, panel in _panels(measured)
        if panel
    ]


def _times(row: Row, without: Sequence[str]) -> Bar:
    found = row.unmapped_ns
    assert found is not None
    ns = (found.p50, found.mean, found.p99, found.last)
    us = [None if one is None else one / 1e3 for one in ns]
    known = [one for one in us if one is not None]
    text = f"p99 {number(found.p99 / 1e3)}, longest {number(found.last / 1e3)}"
    span = Value(known[0], min(known), max(known))
    return Bar(label(row, *without), text, (), span, tuple(us))


def _over_time(rows: Sequence[Row]) -> list[Chart]:
    """Draw the share of the fast tier over time, with a line for each policy."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.tiers.at_ms:
            found.setdefault(label(row, "engine"), []).append(row)
    return [
        _share_over_time(at, title, mine)
        for at, (title, mine) in enumerate(found.items())
    ]


def _share_over_time(at: int, title: str, rows: Sequence[Row]) -> Chart:
    ends = sorted({ms for row in rows for ms in row.tiers.at_ms})
    drawn = []
    for row in rows:
        shares = zip(row.tiers.at_ms, row.tiers.share_over_time, strict=True)
        points = tuple((ends.index(ms), scaled(share, 0.01)) for ms, share in shares)
        drawn.append(Line(row.engine, points))
    places = tuple(f"{ms / 1e3:.0f}" for ms in ends)
    return Lines(
        *(f"over-time-{at}", f"Accesses that the fast tier serves: {title}", "%"),
        *("s", places, tuple(drawn)),
        linear=True,
    )


def _beside(rows: Sequence[Row], tables: Sequence[theirs.Table]) -> list[Chart]:
    """Draw gains over stock Linux: rates of different machines do not compare."""
    others = theirs.gains(tables)
    compared = [row for row in rows if row.engine not in ("stock", "limit")]
    ours, _ = _series(compared, RATIO, FOLIO)
    if not ours or not others:
        return []
    series = [*ours, *others]
    return [*lines(RATIO, FOLIO, series, key=RATIO.key, title=RATIO.name)]
