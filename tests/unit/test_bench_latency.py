# SPDX-License-Identifier: GPL-2.0-only
"""The cases of `bench latency`, rows from measurements, knees and tables."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.bench_data import page, result
from helpers.golden_files import check_golden
from helpers.latency_data import MIB, measured
from pageferry.bench.latency.cases import (
    Case,
    LatencyPlan,
    Sweep,
    check_cases,
    parse_limits,
    parse_streaming,
)
from pageferry.bench.latency.plans import (
    CAPS,
    WORKLOAD,
    fitting_total,
    published_caps,
    published_workload,
)
from pageferry.bench.latency.rows import KNEE_SHARE, Latency, knee, make_rows
from pageferry.bench.latency.spec import SPEC
from pageferry.bench.latency.table import table
from pageferry.bench.options import parse_list
from pageferry.errors import PageferryError
from pageferry.report import published
from pageferry.report.tables import moved_pages
from pageferry.results.schema import Check, Row, decode, encode

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
DMA = Case("dcbm", channels=16, threads=1, mbps=64)
STOCK = Case(threads=1)


def sweep(**changes: Any) -> Sweep:  # noqa: ANN401
    base = Sweep(sizes=(4096, 2 * MIB), totals=(64 * MIB,), engines=("stock", "dcbm"))
    return replace(base, **changes)


def rows_of(cases: list[Case], lines: list[Latency]) -> list[Row]:
    return make_rows(LatencyPlan(cases=tuple(cases)), lines)


def test_what_the_program_is_told() -> None:
    assert STOCK.argument() == "engine=stock,folio=2097152,total=67108864"
    assert DMA.argument() == (
        "engine=dcbm:channels=16,folio=2097152,total=67108864,cap=512,windows=2,"
        "streaming=true,limit=default,mbps=64,share=false"
    )
    limited = replace(DMA, limit_us=500, touch="write", slow=(50, 10))
    assert limited.argument().endswith(
        ",limit=500,mbps=64,share=false,touch=write,slow=50:10"
    )
    mtcopy = Case("mtcopy", threads=2, mbps=64)
    assert mtcopy.argument().startswith("engine=mtcopy:threads=2,")
    assert "mbps" not in mtcopy.argument()


def test_the_posted_design() -> None:
    assert DMA.posted(8192).argument() == (
        "engine=dcbm:channels=16,folio=2097152,total=67108864,cap=8192,windows=1,"
        "streaming=false,limit=0,mbps=64,share=false"
    )


def test_every_combination_is_a_case() -> None:
    cases = sweep(
        engines=("stock", "mtcopy", "dcbm"),
        channels=(1, 16),
        threads=(2,),
        caps=(512, 1024),
        windows=(1, 2),
        limits_us=(None, 0),
    ).cases()
    # Stock once for each size, and three engines with all eight limits.
    assert len(cases) == 2 * (1 + 3 * 8)
    assert len(set(cases)) == len(cases)
    assert cases[0].engine == "stock"
    assert {case.total_bytes for case in cases} == {64 * MIB}


def test_only_simulated_channels_are_slowed_down() -> None:
    cases = sweep(engines=("stock", "mtcopy", "dcbm"), slow=(50, 10)).cases()
    assert {case.engine for case in cases if case.slow} == {"dcbm"}


def test_the_plan_knows_its_modules() -> None:
    plan = LatencyPlan(
        cases=(STOCK, replace(DMA, channels=4), replace(DMA, mbps=10)), rounds=3
    )
    assert plan.engines == ("stock", "dcbm")
    assert plan.modules() == ["dcbm"]
    assert plan.simulated() == {"dmasim": "channels=16 bandwidth_mbps=64"}
    assert plan.measurements() == 3 * 4
    assert plan.arguments()[-1].endswith("mbps=10,share=false")
    # Real channels have a rate of their own.
    assert not any("mbps" in word for word in plan.on_real_channels().arguments())
    assert LatencyPlan(cases=(STOCK,)).simulated() == {}
    assert (
        LatencyPlan(cases=(replace(DMA, channels=1, mbps=4),)).limit_s() > 300 + 6 * 16
    )


def test_lists() -> None:
    assert parse_list("512,1024", "a cap", 1, 4096) == (512, 1024)
    assert parse_limits("default,0,500") == (None, 0, 500)
    assert parse_limits("default") == (None,)
    assert parse_streaming("true,false") == (True, False)


def test_what_the_program_cannot_do() -> None:
    with pytest.raises(PageferryError, match="too many"):
        check_cases([DMA] * 257)
    with pytest.raises(PageferryError, match="whole number"):
        check_cases([replace(DMA, total_bytes=3 * MIB)])
    assert check_cases([STOCK, DMA]) == (STOCK, DMA)


# --- rows ---------------------------------------------------------------------


def test_figures_are_medians_of_rounds() -> None:
    lines = [measured(DMA, 0, 0, 1)]
    for number, scale in ((1, 1), (2, 3), (3, 2)):
        lines.append(
            measured(
                DMA,
                0,
                number,
                1000 * scale,
                first_ns=100 * scale,
                unmapped_sum_ns=32 * 1500 * scale,
                unmapped_hist=[1024 * scale, 32],
                unmapped_max_ns=10**9,
            )
        )
    (row,) = rows_of([DMA], lines)
    assert row.rounds == 3
    assert row.bytes_per_s is not None
    assert row.bytes_per_s.median == 64 * MIB * 10**9 // 2000
    assert row.unmapped_ns is not None
    assert row.latency.unmapped_ns_max is not None
    assert row.unmapped_ns.first == 200
    assert row.unmapped_ns.mean == 3000
    assert row.unmapped_ns.p50 == 2048 + 128
    assert row.unmapped_ns.last == 2304
    assert row.latency.unmapped_ns_max.mean == 4500
    assert row.latency.batch_cap_pages == 512
    assert row.latency.default_limit
    assert row.verified


def test_ratio_is_to_stock_with_the_same_memory() -> None:
    small = replace(STOCK, folio_bytes=4096)
    lines = [
        measured(STOCK, 0, 1, 1000),
        measured(small, 1, 1, 4000),
        measured(DMA, 2, 1, 500),
    ]
    rows = rows_of([STOCK, small, DMA], lines)
    assert [row.ratio_to_stock for row in rows] == [1, 1, 2]
    alone = rows_of([DMA], [measured(DMA, 0, 1, 500)])
    assert alone[0].ratio_to_stock is None


def test_stock_has_no_limits() -> None:
    (row,) = rows_of([STOCK], [measured(STOCK, 0, 1, 1000)])
    assert row.latency.batch_cap_pages is None
    assert row.latency.max_windows is None
    assert row.latency.max_unmapped_us is None
    assert row.unmapped_ns is not None


def test_a_kernel_without_histograms_has_rates() -> None:
    line = measured(
        *(STOCK, 0, 1, 1000),
        first_ns=None,
        unmapped_folios=None,
        unmapped_hist=None,
        waited_threads=None,
        waited_sum_ns=None,
        batches=None,
        over_limit_folios=None,
    )
    (row,) = rows_of([STOCK], [line])
    assert row.unmapped_ns is None
    assert row.latency.waited_ns is None
    assert row.latency.windows is None
    assert row.bytes_per_s is not None
    assert "p99" not in table([row])


def test_a_size_that_the_kernel_lacks_is_left_out() -> None:
    rows = rows_of([STOCK, DMA], [measured(DMA, 1, 1, 500)])
    assert [row.engine for row in rows] == ["dcbm"]


def test_what_a_toucher_lost() -> None:
    case = replace(DMA, touch="write")
    lines = [measured(case, 0, n, 1000, touch_lost_ns=n * 10**6) for n in (1, 2, 6)]
    (row,) = rows_of([case], lines)
    assert row.touch is not None
    assert row.touch.lost_ns_all == 9 * 10**6
    assert row.touch.lost_ns.median == 2 * 10**6
    assert row.touch.slowest_ns == 900_000
    assert row.touch.slow == 9
    assert row.touch.mode == "write"


def test_a_change_that_nobody_saw_is_a_failure() -> None:
    case = replace(DMA, slow=(50, 10))
    (row,) = rows_of([case], [measured(case, 0, 1, 1000)])
    assert row.latency.slowed is not None
    assert row.latency.slowed.skipped_windows == 5
    with pytest.raises(PageferryError, match="slow for long enough"):
        rows_of([case], [measured(case, 0, 1, 1000, slow_seen=False)])


# --- the knee -----------------------------------------------------------------


def test_the_knee_of_what_was_published() -> None:
    """The published text puts the knee at 8192 pages:

    90%, and 2.7 times stock's wait.
    """
    rates = [
        (int(row["batch_cap_pages"]), float(row["gb_per_s"]))
        for row in published.load(CAPS).rows
        if (row["channels"], row["folio_order"]) == ("16", "9")
    ]
    assert knee(rates) == 8192


def test_one_cap_has_no_knee() -> None:
    assert knee([]) is None
    assert knee([(512, 5.0)]) is None


@given(st.dictionaries(st.integers(1, 1 << 18), st.floats(1, 1e9), min_size=2))
def test_the_knee_is_the_first_good_one(rates: dict[int, float]) -> None:
    found = knee(list(rates.items()))
    assert found is not None
    best = max(rates.values())
    assert rates[found] >= KNEE_SHARE * best
    assert all(rate < KNEE_SHARE * best for cap, rate in rates.items() if cap < found)


def test_each_sweep_has_its_knee() -> None:
    cases = [DMA.posted(cap) for cap in (512, 1024)]
    cases += [replace(DMA, channels=1).posted(cap) for cap in (512, 1024)]
    times = (1000, 500, 400, 401)
    lines = [measured(case, n, 1, times[n]) for n, case in enumerate(cases)]
    assert [row.latency.knee for row in rows_of(cases, lines)] == [
        False,
        True,
        True,
        False,
    ]
    assert rows_of([DMA], [measured(DMA, 0, 1, 9)])[0].latency.knee is None


# --- published sweeps ---------------------------------------------------------


def test_totals_fit_the_node() -> None:
    assert fitting_total(1536 * MIB) == 128 * MIB
    assert fitting_total(64 << 30) == 1 << 30
    assert fitting_total(0) == 2 * MIB


def test_all_published_points_are_repeated_where_they_fit() -> None:
    cases = published_caps(1 << 30, 64)
    assert len(cases) == 60 + 2
    assert {case.limit_us for case in cases[2:]} == {0}
    assert not any(case.streaming for case in cases[2:])
    small = published_caps(128 * MIB, 64)
    assert max(case.cap_pages for case in small) == 32768
    workload = published_workload(1 << 30)
    assert len(workload) == len(published.load(WORKLOAD).rows)
    assert {case.engine for case in workload} == {"stock"}
    assert max(c.total_bytes for c in published_workload(128 * MIB)) == 128 * MIB


# --- tables -------------------------------------------------------------------


def some_rows() -> list[Row]:
    cases = [
        replace(STOCK, touch="write"),
        *[replace(DMA, touch="write").posted(cap) for cap in (512, 8192)],
        replace(DMA, touch="write"),
        replace(DMA, touch="write", limit_us=5000, slow=(50, 10)),
        Case("mtcopy", threads=2, touch="write"),
    ]
    times = (33_000_000, 70_000_000, 60_000_000, 61_000_000, 90_000_000, 40_000_000)
    lines = [
        measured(
            *(case, index, number, times[index] + number),
            unmapped_sum_ns=32 * 1_700_000 * (1 + index),
            unmapped_hist=[1024 << index, 31, 1048576 << index, 1],
            unmapped_max_ns=1_050_000 << index,
            over_limit_folios=7 if case.slow else 0,
        )
        for index, case in enumerate(cases)
        for number in (1, 2, 3)
    ]
    return rows_of(cases, lines)


def test_table() -> None:
    held = Check(
        name="toucher: 2 MiB", ok=False, measured=1.5, wanted="<= 1 x", detail="lost"
    )
    text = page(SPEC, msgspec.structs.replace(result(some_rows()), checks=[held]))
    check_golden(GOLDEN / "bench-latency.txt", text + "\n")


def test_published_table() -> None:
    cases = list(published_caps(8 * MIB, 64))[:9]
    lines = [measured(case, n, 1, 5_000_000 + n) for n, case in enumerate(cases)]
    ours = msgspec.structs.replace(
        result(rows_of(cases, lines)), published=[published.load(CAPS).as_json()]
    )
    check_golden(GOLDEN / "bench-latency-published.txt", page(SPEC, ours) + "\n")


def test_workload_table_finds_its_neighbours() -> None:
    cases = list(published_workload(2 * MIB))
    lines = [measured(case, n, 1, 5_000_000 + n) for n, case in enumerate(cases)]
    theirs = published.load(WORKLOAD).as_json()["rows"]
    text = table(rows_of(cases, lines), theirs)
    assert "7.05" in text
    assert " 194" in text


def test_results_survive_a_file() -> None:
    before = result(some_rows())
    assert decode(encode(before)) == before
    assert moved_pages(before.rows) == 6 * 3 * 64 * MIB // 4096
