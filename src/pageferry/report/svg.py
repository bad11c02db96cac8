# SPDX-License-Identifier: GPL-2.0-only
"""Charts as SVG: lines over a setting, and rows of bars. They need no script.

All colors are classes of charts.css, so a chart follows the light or dark setting of
its reader.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, takewhile
from xml.etree import ElementTree as ET

WIDTH = 460
_RIGHT, _TOP = 12, 34
_PLOT = 210
_LEGEND = 19
# A row of bars, and a line of text more where names are long.
_ROW, _TEXT = 38, 17
# No text is wider than this for each letter, in the fonts of most readers.
_LETTER = 7.4
# charts.css has as many colors.
COLORS = 6
# Outlines around 0, so that lines differ without their colors.
_SHAPES = (
    "M-4,0a4,4 0 1,0 8,0a4,4 0 1,0 -8,0z",
    "M-4,-4h8v8h-8z",
    "M0,-5.5l5.5,5.5l-5.5,5.5l-5.5,-5.5z",
    "M0,-5l5,9h-10z",
    "M0,5l5,-9h-10z",
    "M-5,-1.5h3.5v-3.5h3v3.5h3.5v3h-3.5v3.5h-3v-3.5h-3.5z",
)


@dataclass(frozen=True)
class Value:
    """A median with its range."""

    median: float
    min: float
    max: float


@dataclass(frozen=True)
class Line:
    """Values by their places on the axis below. A level has one value for all places."""

    name: str
    points: tuple[tuple[int, Value], ...]
    level: bool = False
    published: bool = False


@dataclass(frozen=True)
class Lines:
    """Lines over a setting."""

    key: str
    title: str
    unit: str
    across: str
    places: tuple[str, ...]
    lines: tuple[Line, ...]
    # Otherwise, values far apart get a logarithmic scale.
    linear: bool = False


@dataclass(frozen=True)
class Bar:
    """A row: parts in a stack, a range, and values that get a mark."""

    name: str
    text: str
    parts: tuple[float, ...] = ()
    span: Value | None = None
    marks: tuple[float | None, ...] = ()


@dataclass(frozen=True)
class Bars:
    """Rows of bars; `parts` and `marks` name what all rows have."""

    key: str
    title: str
    unit: str
    rows: tuple[Bar, ...]
    parts: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    log: bool = False


Chart = Lines | Bars


@dataclass(frozen=True)
class _Scale:
    """Maps values to a range of coordinates, and has ticks at round values."""

    at: Callable[[float], float]
    ticks: tuple[float, ...]


def number(value: float) -> str:
    """Write a number with the digits that a reader can use."""
    if value == 0 or value >= 100:
        return f"{value:,.0f}"
    if value < 0.1:
        return f"{value:.2g}"
    return f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def _tick(value: float) -> str:
    return f"{value:,.10g}"


def render(chart: Chart) -> ET.Element:
    """Draw a chart. The element holds the title and a text for screen readers."""
    svg = ET.Element("svg", {"class": "figure", "role": "img"})
    height = _lines(svg, chart) if isinstance(chart, Lines) else _bars(svg, chart)
    svg.set("viewBox", f"0 0 {WIDTH} {height}")
    svg.set("aria-label", f"{chart.title}. {_spoken(chart)}")
    _text(svg, 0, 15, chart.title, "title")
    return svg


def standalone(chart: Chart, style: str) -> str:
    """Write a chart as a file."""
    svg = render(chart)
    svg.set("xmlns", "http://www.w3.org/2000/svg")
    height = svg.attrib["viewBox"].split()[-1]
    svg.set("viewBox", f"-10 -6 {WIDTH + 20} {int(height) + 12}")
    svg.set("width", str(WIDTH + 20))
    svg.set("height", str(int(height) + 12))
    paper = ET.Element("rect", {"class": "paper", "x": "-10", "y": "-6"})
    paper.set("width", str(WIDTH + 20))
    paper.set("height", str(int(height) + 12))
    sheet = ET.Element("style")
    sheet.text = style
    svg[:0] = [sheet, paper]
    return ET.tostring(svg, encoding="unicode") + "\n"


def _spoken(chart: Chart) -> str:
    names = [one.name for one in _content(chart)]
    kind = "Lines" if isinstance(chart, Lines) else "Bars"
    return f"{kind} of: {'; '.join(names)}. The tables have the figures."


def _content(chart: Chart) -> Sequence[Line | Bar]:
    return chart.lines if isinstance(chart, Lines) else chart.rows


def _round_steps(most: float) -> tuple[float, ...]:
    """Divide 0..most into at most five steps of 1, 2 or 5 times a power of ten."""
    rough = most / 5
    power = 10.0 ** math.floor(math.log10(rough))
    step = next(m * power for m in (1, 2, 5, 10) if m * power >= rough * 0.999)
    top = math.ceil(most / step * 0.999)
    return tuple(step * n for n in range(top + 1))


def _round_decades(least: float, most: float) -> tuple[float, ...]:
    """List powers of ten around a range, and their multiples if it is short."""
    low = math.floor(math.log10(least))
    steps = (1, 2, 5) if most / least < 100 else (1,)
    every = (m * 10.0**n for n in count(low) for m in steps)
    below = list(takewhile(lambda tick: tick < most * 0.999, every))
    last = next(
        m * 10.0**n for n in count(low) for m in steps if m * 10.0**n >= most * 0.999
    )
    ticks = [*below, last]
    while len(ticks) > 2 and ticks[1] <= least:
        ticks.pop(0)
    return tuple(ticks)


def _scale(values: Sequence[float], start: float, end: float, *, log: bool) -> _Scale:
    """Choose the scale for values from coordinate `start` to `end`."""
    most = max(values, default=0) or 1.0
    if not log:
        ticks = _round_steps(most)
        return _Scale(lambda v: start + (end - start) * v / ticks[-1], ticks)
    least = min((value for value in values if value > 0), default=most)
    ticks = _round_decades(least, most)
    low, span = math.log(ticks[0]), math.log(ticks[-1] / ticks[0]) or 1.0

    def at(value: float) -> float:
        share = (math.log(max(value, ticks[0])) - low) / span
        return start + (end - start) * share

    return _Scale(at, ticks)


def _lines(svg: ET.Element, chart: Lines) -> int:
    """Draw lines and their legend, and return the height."""
    values = [value for line in chart.lines for _, value in line.points]
    medians = [value.median for value in values if value.median > 0]
    apart = bool(medians) and max(medians) > 20 * min(medians)
    log = apart and not chart.linear
    ends = [end for value in values for end in (value.min, value.max)]
    bottom = _TOP + 18 + _PLOT
    scale = _scale(ends, bottom, _TOP + 18, log=log)
    left = 10 + _LETTER * max(len(_tick(tick)) for tick in scale.ticks)
    _text(svg, 0, _TOP + 4, chart.unit + (", logarithmic" if log else ""), "quiet")
    for tick in scale.ticks:
        y = scale.at(tick)
        _path(svg, f"M{left:.1f},{y:.1f}H{WIDTH - _RIGHT}", "grid")
        _text(svg, left - 6, y + 4, _tick(tick), "quiet end")
    step = (WIDTH - _RIGHT - left) / len(chart.places)
    across = [left + step * (at + 0.5) for at in range(len(chart.places))]
    every = math.ceil(_LETTER * max(map(len, chart.places)) / step)
    for at in range(0, len(across), every):
        _text(svg, across[at], bottom + 17, chart.places[at], "quiet middle")
    _text(svg, WIDTH - _RIGHT, bottom + 35, chart.across, "quiet end")
    for at, line in enumerate(chart.lines):
        if line.level:
            y = scale.at(line.points[0][1].median)
            _path(svg, f"M{left:.1f},{y:.1f}H{WIDTH - _RIGHT}", _kind(line, at))
        else:
            _line(svg, chart, line, at, across, scale)
    top = bottom + 54
    for at, line in enumerate(chart.lines):
        y = top + at * _LEGEND
        _path(svg, f"M0,{y - 4}H26", _kind(line, at))
        if not line.level:
            _shape(svg, 13, y - 4, at, line)
        _text(svg, 34, y, line.name)
    return top + len(chart.lines) * _LEGEND - 8


def _kind(line: Line, at: int) -> str:
    """Name the classes of a line."""
    if line.level:
        return f"line level c{at % COLORS}"
    dashed = " theirs" if line.published else ""
    return f"line{dashed} c{at % COLORS}"


def _line(
    svg: ET.Element,
    chart: Lines,
    line: Line,
    at: int,
    across: Sequence[float],
    scale: _Scale,
) -> None:
    """Draw a line with the ranges of its points."""
    # Ranges of lines at the same place stand side by side.
    shift = (at - (len(chart.lines) - 1) / 2) * min(5, 40 / len(chart.lines))
    spots = [(across[place] + shift, value) for place, value in line.points]
    way = "L".join(f"{x:.1f},{scale.at(value.median):.1f}" for x, value in spots)
    _path(svg, f"M{way}", _kind(line, at))
    for (x, value), (place, _) in zip(spots, line.points, strict=True):
        if value.min != value.max:
            low, high = scale.at(value.min), scale.at(value.max)
            _path(svg, f"M{x:.1f},{low:.1f}V{high:.1f}", f"span c{at % COLORS}")
        group = _shape(svg, x, scale.at(value.median), at, line)
        title = ET.SubElement(group, "title")
        title.text = f"{line.name}, {chart.places[place]}: {said(value)} {chart.unit}"


def said(value: Value) -> str:
    """Write a value with its range."""
    low, high = number(value.min), number(value.max)
    middle = number(value.median)
    return middle if low == high else f"{middle} ({low} to {high})"


def _shape(
    parent: ET.Element, x: float, y: float, at: int, line: Line | None = None
) -> ET.Element:
    hollow = " hollow" if line is not None and line.published else ""
    # When colors begin again, shapes do not: each pair of both is unique.
    shape = _SHAPES[(at + at // COLORS) % len(_SHAPES)]
    made = _path(parent, shape, f"dot{hollow} c{at % COLORS}")
    made.set("transform", f"translate({x:.1f},{y:.1f})")
    return made


def _bars(svg: ET.Element, chart: Bars) -> int:
    """Draw rows of bars with an axis below, and return the height."""
    values = [v for row in chart.rows for v in (*row.marks, sum(row.parts)) if v]
    values += [end for row in chart.rows if row.span for end in _ends(row.span)]
    scale = _scale(values, 0, WIDTH, log=chart.log)
    top = _TOP - 6 + _key(svg, chart)
    widest = max(len(row.name) + len(row.text) + 2 for row in chart.rows)
    long = _TEXT if widest * _LETTER > WIDTH else 0
    bottom = top + len(chart.rows) * (_ROW + long) + 4
    for tick in scale.ticks:
        _path(svg, f"M{scale.at(tick):.1f},{top + 4}V{bottom}", "grid")
    for at, row in enumerate(chart.rows):
        _bar(svg, row, top + at * (_ROW + long), long, scale)
    for tick in scale.ticks:
        kind = {scale.ticks[0]: "", scale.ticks[-1]: " end"}.get(tick, " middle")
        _text(svg, scale.at(tick), bottom + 15, _tick(tick), f"quiet{kind}")
    log = ", logarithmic" if chart.log else ""
    _text(svg, WIDTH, bottom + 32, chart.unit + log, "quiet end")
    return bottom + 40


def _key(svg: ET.Element, chart: Bars) -> int:
    """Explain parts and marks above the bars, and return the height of that."""
    names = [*chart.parts, *chart.marks]
    x = 0.0
    for at, name in enumerate(names):
        if at < len(chart.parts):
            _rect(svg, x, _TOP - 4, 12, 12, f"fill c{at}")
        else:
            _shape(svg, x + 6, _TOP + 2, at - len(chart.parts))
        _text(svg, x + 18, _TOP + 6, name)
        x += 34 + _LETTER * len(name)
    return 18 if names else 0


def _ends(span: Value) -> tuple[float, float]:
    return span.min, span.max


def _bar(svg: ET.Element, row: Bar, top: float, long: int, scale: _Scale) -> None:
    """Draw one row: its texts, and its bar below them."""
    _text(svg, 0, top + 17, row.name, "halo")
    top += long
    _text(svg, WIDTH, top + 17, row.text, "halo end")
    done = 0.0
    for at, part in enumerate(row.parts):
        x = scale.at(done)
        done += part
        _rect(svg, x, top + 23, scale.at(done) - x, 12, f"fill c{at}")
    if row.span is not None and row.span.min != row.span.max:
        low, high = map(scale.at, _ends(row.span))
        for kind in ("range under", "range"):
            _path(svg, f"M{low:.1f},{top + 29}H{high:.1f}", kind)
    for at, mark in enumerate(row.marks):
        if mark is not None:
            _shape(svg, scale.at(mark), top + 29, at)


def _text(
    parent: ET.Element, x: float, y: float, text: str, kind: str | None = None
) -> None:
    made = ET.SubElement(parent, "text", x=f"{x:.1f}", y=f"{y:.1f}")
    made.text = text
    if kind:
        made.set("class", kind)


def _path(parent: ET.Element, way: str, kind: str) -> ET.Element:
    return ET.SubElement(parent, "path", {"d": way, "class": kind})


def _rect(
    parent: ET.Element, x: float, y: float, width: float, height: float, kind: str
) -> None:
    made = ET.SubElement(parent, "rect", x=f"{x:.1f}", y=f"{y:.1f}")
    made.set("width", f"{max(width, 0):.1f}")
    made.set("height", f"{height:.1f}")
    made.set("class", kind)
