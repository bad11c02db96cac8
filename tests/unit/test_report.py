# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry report` on the results in docs/results."""

from __future__ import annotations

import base64
import re
from html.parser import HTMLParser
from pathlib import Path

import msgspec
import pytest

from helpers.bench_data import result
from pageferry.cli import main
from pageferry.report import difference, page, svg, verdict
from pageferry.report.page import Shown
from pageferry.results.schema import RatioSpread, Result, Row, Spread, decode

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted((ROOT / "docs/results").glob("*.json"))
VOID = {"meta"}


class Reader(HTMLParser):
    """Collects tags and links, and checks that all tags are closed."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.words = ""
        self.feed(text)
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words += data


def printed(capsys: pytest.CaptureFixture[str], *argv: str | Path) -> str:
    assert main(["report", *map(str, argv)]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_page_stands_alone(path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = printed(capsys, path)
    assert text.startswith('<!doctype html>\n<html lang="en">')
    found = Reader(text)
    assert not {"script", "link", "img", "iframe"} & set(found.tags)
    assert "url(" not in text and "@import" not in text
    targets = [v for n, v in found.attributes if n in ("href", "src")]
    (data,) = targets
    assert data.startswith("data:application/json;base64,")
    kept = decode(base64.b64decode(data.partition(",")[2]))
    assert kept == decode(path.read_bytes())
    # The tables of `bench` are there, charts, and the same figures for screen readers.
    assert "All figures" in found.words
    assert "svg" in found.tags and f"Medians and ranges of {path.name}" in found.words
    assert "(more is better)" in found.words or "(less is better)" in found.words


def test_several_results_are_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    found = Reader(printed(capsys, *FILES[:3]))
    assert found.tags.count("h1") == 1
    assert found.tags.count("h2") == 3


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_labels_tell_rows_apart(path: Path) -> None:
    rows = [
        (row.bench, difference.label(row)) for row in decode(path.read_bytes()).rows
    ]
    assert len(set(rows)) == len(rows)


def test_text_is_escaped() -> None:
    evil = "</pre><script>alert(1)</script>"
    one = Shown(evil, result([]), evil)
    found = Reader(page.render([one]))
    assert "script" not in found.tags
    assert evil in found.words


def rows_of(**fields: object) -> Result:
    """Make a result whose only row beside stock has these fields."""
    row = Row(
        bench="move-pages",
        engine="mtcopy",
        channels=0,
        threads=2,
        folio_bytes=4096,
        moved_bytes=1 << 20,
        rounds=5,
        verified=True,
    )
    return result([msgspec.structs.replace(row, **fields)])


@pytest.mark.parametrize(
    ("low", "middle", "high", "said"),
    [
        (1.2, 1.5, 1.7, "The best throughput is 1.50x (1.20..1.70)"),
        (0.9, 1.1, 1.7, "No difference from stock Linux exceeds its spread"),
        (0.5, 0.6, 0.7, "Nothing is faster than stock Linux"),
    ],
)
def test_the_verdict_knows_noise(
    low: float, middle: float, high: float, said: str
) -> None:
    spread = RatioSpread(median=middle, min=low, max=high)
    made = rows_of(ratio_to_stock=middle, ratio_to_stock_spread=spread)
    assert verdict.sentence(made).startswith(said)


def test_doubts_are_listed() -> None:
    made = rows_of(rounds=3, verified=False)
    machine = msgspec.structs.replace(made.machine, accel="tcg", host_other_load=0.5)
    said = " ".join(verdict.warnings(msgspec.structs.replace(made, machine=machine)))
    for words in ("emulated", "50%", "verified", "fewest rounds of a row: 3"):
        assert words in said
    machine = msgspec.structs.replace(machine, accel="kvm", host_other_load=0.0)
    made = rows_of(rounds=5, verified=True)
    assert verdict.warnings(msgspec.structs.replace(made, machine=machine)) == []


@pytest.mark.parametrize(
    ("after", "said"),
    [
        ((150, 140, 160), "better"),
        ((50, 40, 60), "worse"),
        ((105, 95, 120), "noise: the ranges overlap"),
        ((100, 90, 110), "equal"),
    ],
)
def test_a_difference_and_noise(after: tuple[int, int, int], said: str) -> None:
    before = Spread(median=100, min=90, max=110)
    now = Spread(median=after[0], min=after[1], max=after[2])
    (found,) = (
        one
        for one in difference.compare(
            rows_of(bytes_per_s=before), rows_of(bytes_per_s=now)
        ).found
        if one.figure.unit == "GB/s"
    )
    assert found.verdict == said
    # Fewer instructions and shorter times are better.
    turned = {"better": "worse", "worse": "better"}
    time = difference.Difference("", difference.FIGURES[1], before, now)
    assert time.verdict == turned.get(said, said)


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_a_comparison_drops_no_row(path: Path) -> None:
    whole = decode(path.read_bytes())
    compared = difference.compare(whole, whole)
    read = [figure.read(row) for row in whole.rows for figure in difference.FIGURES]
    assert len(compared.found) == sum(spread is not None for spread in read)
    # Rows without a difference that the label names are compared in their order.
    twice = msgspec.structs.replace(whole, rows=[*whole.rows, *whole.rows])
    assert len(difference.compare(twice, twice).found) == 2 * len(compared.found)
    fewer = msgspec.structs.replace(whole, rows=whole.rows[1:])
    first = [difference.label(whole.rows[0])]
    assert difference.compare(whole, fewer).only_before == first
    assert difference.compare(fewer, whole).only_after == first
    shown = page.render([], (Shown("a", whole, ""), Shown("b", fewer, "")))
    assert f"Only a has: {first[0]}" in Reader(shown).words


def test_a_page_of_a_comparison(capsys: pytest.CaptureFixture[str]) -> None:
    path = FILES[0]
    text = printed(capsys, "--compare", path, path)
    found = Reader(text)
    assert "0 are better and 0 are worse" in found.words
    assert "the machines differ" not in found.words
    other = printed(capsys, "--compare", FILES[0], FILES[1])
    assert "The results have no row in common." in other
    assert "the machines differ" in other


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "needs results"),
        (["a.json", "--compare", "b.json", "c.json"], "needs results"),
        (["no/such.json"], "no/such.json"),
        ([str(ROOT / "README.md")], "not a pageferry result"),
    ],
)
def test_bad_usage(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["report", *argv]) in (1, 2)
    assert named in capsys.readouterr().err


def _luminance(color: str) -> float:
    parts = [int(color[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colors, as WCAG 2 defines it."""
    light, dark = sorted((_luminance(one), _luminance(other)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def test_colors_have_contrast() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    light, dark = re.findall(r":root \{([^}]*)\}", page.STYLE)
    for text in (light, dark):
        colors = dict(re.findall(r"--(\w+): (#\w{6})", text))
        for background in ("paper", "soft"):
            assert contrast(colors["ink"], colors[background]) >= 7
            # Bars and lines are graphics.
            assert contrast(colors["bar"], colors[background]) >= 3
        assert contrast(colors["quiet"], colors["paper"]) >= 4.5
        assert contrast(colors["warn"], colors["paper"]) >= 4.5
        series = [color for name, color in colors.items() if re.match(r"c\d", name)]
        assert len(series) == svg.COLORS
        assert all(contrast(color, colors["paper"]) >= 3 for color in series)
