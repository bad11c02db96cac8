# SPDX-License-Identifier: GPL-2.0-only
"""Charts as SVG: places, ticks and texts."""

from __future__ import annotations

import re
from itertools import pairwise
from xml.etree import ElementTree as ET

import pytest

from pageferry.report import svg
from pageferry.report.svg import Bar, Bars, Line, Lines, Value


def exact(value: float) -> Value:
    return Value(value, value, value)


def curve(*values: float, places: tuple[str, ...] = ("a", "b", "c")) -> Lines:
    points = tuple((at, exact(value)) for at, value in enumerate(values))
    return Lines("k", "A title", "GB/s", "size", places, (Line("one", points),))


def texts(made: ET.Element) -> list[str]:
    return [text.text or "" for text in made.iter("text")]


def heights(made: ET.Element) -> list[float]:
    """Return where the points of the first line are, from above."""
    (way,) = (
        path.attrib["d"]
        for path in made.iter("path")
        if path.attrib["class"] == "line c0" and "L" in path.attrib["d"]
    )
    return [float(y) for y in re.findall(r",([\d.]+)", way)]


def grid(made: ET.Element) -> list[float]:
    """Return where the ticks of the lines are, from below."""
    return [
        float(re.findall(r",([\d.]+)H", path.attrib["d"])[0])
        for path in made.iter("path")
        if path.attrib["class"] == "grid"
    ]


def test_lines_begin_at_zero_and_are_in_proportion() -> None:
    made = svg.render(curve(1, 2, 4))
    assert texts(made)[1:6] == ["0", "1", "2", "3", "4"]
    assert heights(made) == [grid(made)[1], grid(made)[2], grid(made)[4]]


def test_values_that_differ_much_are_on_a_logarithmic_axis() -> None:
    made = svg.render(curve(1, 10, 1000))
    assert texts(made)[0] == "GB/s, logarithmic"
    assert texts(made)[1:5] == ["1", "10", "100", "1,000"]
    assert heights(made) == [grid(made)[at] for at in (0, 1, 3)]


@pytest.mark.parametrize("most", [0.0007, 0.013, 0.9, 1, 3.7, 11.2, 99, 5001, 8e7])
def test_ticks_are_round_and_cover_the_values(most: float) -> None:
    for log in (False, True):
        scale = svg._scale([most / 7, most], 0, 100, log=log)
        assert 2 <= len(scale.ticks) <= 7
        assert scale.ticks[-1] >= most * 0.999
        for tick in scale.ticks[1:]:
            assert float(f"{tick:.1e}") == pytest.approx(tick)
        assert scale.at(scale.ticks[0]) == 0
        assert scale.at(scale.ticks[-1]) == pytest.approx(100)
        assert all(a < b for a, b in pairwise(map(scale.at, scale.ticks)))


def test_long_names_of_places_are_thinned() -> None:
    places = tuple(f"{1 << at} KiB" for at in range(12))
    shown = texts(svg.render(curve(*range(1, 13), places=places)))
    named = [place for place in places if place in shown]
    assert named == list(places[::2])


def test_ranges_and_tooltips() -> None:
    points = ((0, Value(2, 1, 3)), (1, exact(2)))
    chart = Lines("k", "T", "us", "size", ("a", "b"), (Line("one", points),))
    made = svg.render(chart)
    spans = [p for p in made.iter("path") if p.attrib["class"].startswith("span")]
    assert len(spans) == 1
    tips = [title.text for title in made.iter("title")]
    assert tips == ["one, a: 2.00 (1.00 to 3.00) us", "one, b: 2.00 us"]


def test_eight_lines_differ_without_colors() -> None:
    lines = tuple(Line(f"{n}", ((0, exact(1)), (1, exact(2)))) for n in range(8))
    made = svg.render(Lines("k", "T", "us", "size", ("a", "b"), lines))
    dots = [p for p in made.iter("path") if p.attrib["class"].startswith("dot")]
    assert len({(p.attrib["d"], p.attrib["class"]) for p in dots}) == 8


def test_bars_are_stacked_in_proportion() -> None:
    rows = (Bar("one", "3 + 1", (3.0, 1.0)), Bar("two", "2", (2.0, 0.0)))
    made = svg.render(Bars("k", "T", "ms", rows, ("work", "rest")))
    found = [
        (float(r.attrib["x"]), float(r.attrib["width"]))
        for r in made.iter("rect")
        if r.attrib["height"] == "12.0" and float(r.attrib["y"]) > 50
    ]
    assert found == [(0, 345), (345, 115), (0, 230), (230, 0)]


def test_a_long_name_leaves_room_for_its_figure() -> None:
    def rows(name: str) -> list[tuple[float, float]]:
        made = svg.render(Bars("k", "T", "ms", (Bar(name, "1.00", (1.0,)),)))
        return [
            (float(text.attrib["y"]), float(text.attrib["x"]))
            for text in made.iter("text")
            if text.text in (name, "1.00")
        ]

    short, long = rows("short"), rows("a name of a row " * 4)
    assert short[0][0] == short[1][0]
    assert long[0][0] < long[1][0]


def test_a_file_stands_alone() -> None:
    style = ":root { --ink: #000000; }"
    text = svg.standalone(curve(1, 2), style)
    root = ET.fromstring(text)
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert style in text
    assert root.attrib["role"] == "img"
    assert "Lines of: one" in root.attrib["aria-label"]


@pytest.mark.parametrize(
    ("value", "shown"),
    [(0, "0"), (0.0098, "0.0098"), (0.5, "0.50"), (38.97, "39.0"), (12345, "12,345")],
)
def test_numbers_have_useful_digits(value: float, shown: str) -> None:
    assert svg.number(value) == shown
