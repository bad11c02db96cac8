# SPDX-License-Identifier: GPL-2.0-only
"""Which charts results have."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from helpers.bench_data import result
from pageferry.commands.report import read
from pageferry.report import published
from pageferry.report.charts import charts
from pageferry.report.svg import Bars, Chart, Lines, Value
from pageferry.results.schema import (
    Compaction,
    Copy,
    Latency,
    RatioSpread,
    Row,
    Scale,
    Spread,
    Unmapped,
)

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "docs/results"
FILES = sorted(RESULTS.glob("*.json"))
KIB = 1024


def row(engine: str = "dcbm", rate: int = 10**9, **fields: object) -> Row:
    made = Row(
        bench="move-pages",
        engine=engine,
        channels=0,
        threads=1,
        folio_bytes=4 * KIB,
        moved_bytes=1 << 20,
        rounds=5,
        verified=True,
        bytes_per_s=Spread(median=rate, min=rate // 2, max=rate * 2),
    )
    return msgspec.structs.replace(made, **fields)


def drawn(*rows: Row, tables: tuple[str, ...] = ()) -> dict[str, Chart]:
    theirs = [published.load(name).as_json() for name in tables]
    return {chart.key: chart for chart in charts(result(list(rows)), theirs)}


def lines(chart: Chart) -> dict[str, dict[str, float]]:
    """Return the medians of lines by name and place."""
    assert isinstance(chart, Lines)
    return {
        line.name: {chart.places[at]: value.median for at, value in line.points}
        for line in chart.lines
    }


def test_copies_have_a_chart_for_each_kind_of_memory() -> None:
    rows = [
        row(bench="copy", engine=engine, folio_bytes=size * KIB, copy=Copy(memory=kind))
        for kind in ("cold", "read")
        for engine in ("pages", "direct")
        for size in (4, 64)
    ]
    found = drawn(*rows)
    keys = [key for key in found if key.startswith("throughput-over-folio")]
    assert keys == ["throughput-over-folio-cold", "throughput-over-folio-read"]
    for key in keys:
        assert set(lines(found[key])) == {"pages", "direct"}


def test_throughput_over_folio_size() -> None:
    sizes = (4 * KIB, 2048 * KIB)
    found = drawn(
        *(row("stock", 10**9, folio_bytes=size) for size in sizes),
        *(row("cpu", 2 * 10**9, folio_bytes=size) for size in reversed(sizes)),
    )
    chart = found["throughput-over-folio"]
    assert lines(chart) == {
        "stock": {"4 KiB": 1, "2 MiB": 1},
        "cpu": {"4 KiB": 2, "2 MiB": 2},
    }
    assert isinstance(chart, Lines)
    assert chart.lines[1].points[0][1] == Value(2, 1, 4)
    assert "throughput" not in found


def test_throughput_over_channels_beside_stock() -> None:
    found = drawn(row("stock"), *(row(channels=n, rate=n * 10**9) for n in (1, 2, 4)))
    chart = found["throughput-over-channels"]
    assert lines(chart)["dcbm"] == {"1": 1, "2": 2, "4": 4}
    assert isinstance(chart, Lines)
    assert [line.name for line in chart.lines if line.level] == ["stock"]


def test_instructions_over_sizes_and_movers() -> None:
    counted = row(bench="scale", bytes_per_s=None, instructions_per_folio=10)
    sizes = [Scale(size_bytes=size, call_pages=n) for size in (1, 2) for n in (0, 256)]
    each = [*sizes, *(Scale(movers=number) for number in (4, 1))]
    found = drawn(*(msgspec.structs.replace(counted, scale=own) for own in each))
    assert lines(found["instructions-over-size"]) == {
        "dcbm, one call": {"1 B": 10, "2 B": 10},
        "dcbm, calls of 256 pages": {"1 B": 10, "2 B": 10},
    }
    assert lines(found["instructions-over-movers"]) == {"dcbm": {"1": 10, "4": 10}}
    assert len(found) == 2


def test_throughput_and_latency_over_the_limit() -> None:
    times = Unmapped(first=1000, mean=2000, p50=2000, p99=3000, last=4000)
    rows = [
        row(unmapped_ns=times, latency=Latency(max_unmapped_us=us, max_windows=2))
        for us in (2000, 0, 500)
    ]
    found = drawn(*rows)
    for key in ("throughput-over-limit", "unmapped-over-limit"):
        chart = found[key]
        assert isinstance(chart, Lines)
        # Without a limit comes after all limits.
        assert chart.places == ("500", "2,000", "none")
    assert lines(found["unmapped-over-limit"])["dcbm"]["none"] == 3


def test_the_distribution_of_unmapped_times() -> None:
    times = Unmapped(mean=2000, p50=1000, p99=30000, last=40000)
    chart = drawn(row(unmapped_ns=times))["distribution"]
    assert isinstance(chart, Bars)
    assert chart.marks == ("p50", "mean", "p99", "longest") and chart.log
    assert chart.rows[0].marks == (1, 2, 30, 40)
    assert chart.rows[0].span == Value(1, 1, 40)


def test_the_cost_of_phases_adds_up() -> None:
    rows = [
        row("cpu", folio_bytes=8 * KIB, instructions_per_folio=10_000),
        row("dcbm", folio_bytes=8 * KIB, instructions_per_folio=4_000),
    ]
    rows[0] = msgspec.structs.replace(rows[0], copy_instructions=3_000)
    chart = drawn(*rows)["phases"]
    assert isinstance(chart, Bars)
    # For each 4 KiB. The CPU copies nothing for an engine.
    assert [bar.parts for bar in chart.rows] == [(3_500, 1_500), (2_000, 0)]


def test_the_time_of_the_cpu_during_compaction() -> None:
    wall = Spread(median=200_000_000, min=1, max=200_000_000)
    own = Compaction(wall_ns=wall, system_share=0.5, user_share=0.4, idle_share=0.1)
    chart = drawn(row(compaction=own))["cpu-time"]
    assert isinstance(chart, Bars)
    assert chart.rows[0].parts == (100, 80, 20)


def test_gains_stand_beside_published_ones() -> None:
    gain = RatioSpread(median=1.5, min=1.4, max=1.6)
    rows = [
        row("mtcopy", folio_bytes=size * KIB, threads=2, ratio_to_stock_spread=gain)
        for size in (4, 64)
    ]
    found = lines(drawn(*rows, tables=("move_pages_rfc_v5",))["beside"])
    assert found["mtcopy"] == {"4 KiB": 1.5, "64 KiB": 1.5}
    assert found["published: dma, 16 channels"]["2 MiB"] == pytest.approx(65.23 / 11.02)
    assert "beside" not in drawn(*rows)


def test_an_unreadable_number_of_lines_is_left_to_the_table() -> None:
    rows = [
        row(channels=n, latency=Latency(batch_cap_pages=cap))
        for n in (1, 2)
        for cap in range(9)
    ]
    assert "throughput-over-channels" not in drawn(*rows)
    assert len(lines(drawn(*rows)["throughput-over-cap"])) == 2


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_names_tell_lines_and_bars_apart(path: Path) -> None:
    one = read(path)
    made = charts(one.result, one.tables)
    assert made and len({chart.key for chart in made}) == len(made)
    for chart in made:
        content = chart.lines if isinstance(chart, Lines) else chart.rows
        assert len({part.name for part in content}) == len(content), chart.key


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_lines_have_all_rows_of_their_axis(path: Path) -> None:
    one = read(path)
    sizes = {row.folio_bytes for row in one.result.rows}
    for chart in charts(one.result, ()):
        if isinstance(chart, Lines) and chart.key == "throughput-over-folio":
            assert len(chart.places) == len(sizes)
            points = sum(len(line.points) for line in chart.lines)
            assert points == len(one.result.rows)
