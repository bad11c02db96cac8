# SPDX-License-Identifier: GPL-2.0-only
"""The measurements of `bench latency --check`, and their judgement."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from helpers.latency_data import MIB, SLOWED, row, touch, unmapped
from pageferry.bench.latency.cases import Case, LatencyPlan
from pageferry.bench.latency.checks import (
    ALONE,
    judge,
    limit,
    overlap,
    throughput,
    toucher,
)
from pageferry.bench.latency.plans import (
    CHECKS,
    Calibration,
    CheckPlan,
    Rates,
    calibration_of,
    rates_of,
)
from pageferry.errors import PageferryError
from pageferry.results.schema import Check, Latency, Row

KNOWN = Calibration(Rates(64, 25), large_ns=2_000_000, small_ns=200_000)
GB = 10**9


def cases(*names: str) -> dict[tuple[str | None, int], Case]:
    found = CheckPlan(names=names or CHECKS).cases(KNOWN)
    return {(case.role, case.folio_bytes): case for case in found}


def verdicts(checks: list[Check]) -> dict[str, bool]:
    return {check.name: check.ok for check in checks}


# --- the plan -----------------------------------------------------------------


def test_every_check_has_its_cases() -> None:
    roles = {(role or "").partition("/")[0] for role, _ in cases()}
    assert roles == set(CHECKS)
    assert {(role or "").partition("/")[0] for role, _ in cases("toucher")} == {
        "toucher"
    }


def test_the_posted_design_stands_beside() -> None:
    found = cases()
    largest = found["throughput/largest-cap", 2 * MIB]
    assert (largest.max_windows, largest.streaming, largest.limit_us) == (1, False, 0)
    assert largest.cap_pages * 4096 >= largest.total_bytes
    assert found["throughput/one-batch", 2 * MIB].cap_pages == 512
    # For one folio, as KNOWN has it, behind a part of another; not for two.
    limit_us = found["throughput/windows", 2 * MIB].limit_us
    assert limit_us == round(1.7 * KNOWN.large_ns / 1000)


def test_bookkeeping_and_copying_are_measured_apart() -> None:
    found = cases("overlap")
    assert found["overlap/bookkeeping", 4096].mbps == 0
    # Half of the rate at which both would take equally long.
    mbps = KNOWN.rates.balanced_mbps // 2
    assert found["overlap/windows", 4096].mbps == mbps
    assert found["overlap/copying", 2 * MIB].mbps == mbps


def test_stock_is_touched_in_the_same_way() -> None:
    found = cases("toucher")
    for size in (4096, 2 * MIB):
        stock, ours = found["toucher/stock", size], found["toucher/windows", size]
        assert stock.engine == "stock"
        assert stock.touch == ours.touch == "write"
        assert stock.total_bytes == ours.total_bytes


def test_limits_are_times_of_one_folio() -> None:
    found = cases("limit")
    assert found["limit/2", 4096].limit_us == 400
    assert found["limit/50", 2 * MIB].limit_us == 100_000
    assert found["limit/0.5", 4096].limit_us == 100
    assert found["limit/5/slowed", 2 * MIB].slow == (50, 10)
    assert found["limit/20/slowed", 2 * MIB].limit_us == 40_000
    assert ("limit/20", 2 * MIB) not in found
    assert ("limit/10/slowed", 2 * MIB) not in found
    assert ("limit/0.5/slowed", 4096) not in found
    # The best case: one by one, with nothing else in flight.
    alone = found["limit/alone", 2 * MIB]
    assert (alone.cap_pages, alone.max_windows, alone.limit_us) == (512, 1, 0)
    assert found["limit/alone", 4096].cap_pages == 1
    assert found["limit/50", 4096].cap_pages == 262144
    # One window is one batch there.
    assert found["limit/50/slowed", 4096].cap_pages == 512
    assert len(found) == 2 * (2 + 2 * 4)


def test_rates_come_from_the_machine() -> None:
    plan = CheckPlan()
    rows = [
        row("calibrate/stock", 2 * GB),
        row("calibrate/bookkeeping", 480 * 10**6, folio_bytes=4096),
    ]
    # An eighth of a CPU's copy rate, and as much as the CPU can unmap and move.
    assert rates_of(plan, rows) == Rates(16, 30)
    assert Rates(16, 30).small_mbps == 30
    # The channel must be able to become ten times slower.
    assert Rates(16, 3).small_mbps == 10
    slow = [msgspec.structs.replace(one, bytes_per_s=None) for one in rows[:1]]
    with pytest.raises(PageferryError, match="missing"):
        rates_of(plan, [])
    assert slow[0].latency.role == "calibrate/stock"


def test_one_folio_is_one_batch() -> None:
    first, second = CheckPlan().folio_cases(Rates(64, 25))
    assert (first.cap_pages, second.cap_pages) == (512, 1)
    assert first.max_windows == second.max_windows == 1
    rows = [
        row("calibrate/one-2M", GB, unmapped_ns=unmapped(2_100_000, 2_200_000)),
        row("calibrate/one-4K", GB, unmapped_ns=unmapped(230_000, 400_000)),
    ]
    known = calibration_of(Rates(64, 25), rows)
    assert (known.folio_ns(2 * MIB), known.folio_ns(4096)) == (2_100_000, 230_000)
    assert (known.mbps(2 * MIB), known.mbps(4096)) == (64, 25)
    untimed = [msgspec.structs.replace(one, unmapped_ns=None) for one in rows]
    with pytest.raises(PageferryError, match="are unmapped"):
        calibration_of(Rates(64, 25), untimed)


def test_all_of_it_is_one_run() -> None:
    assert 20 < len(LatencyPlan(cases=CheckPlan().cases(KNOWN)).cases) < 64


# --- the judgement ------------------------------------------------------------


def throughput_rows(
    rate: int, mean: int, p99: int, engine_bytes: int | None = None
) -> list[Row]:
    if engine_bytes is None:
        one = row("throughput/windows", rate)
        engine_bytes = one.moved_bytes * one.rounds
    ours = {"unmapped_ns": unmapped(mean, p99), "engine_bytes": engine_bytes}
    return [
        row("throughput/largest-cap", GB, unmapped_ns=unmapped(10**8, 2 * 10**8)),
        row("throughput/one-batch", GB // 2, unmapped_ns=unmapped(2 * 10**6, 10**7)),
        row("throughput/windows", rate, **ours),
    ]


@pytest.mark.parametrize(
    ("rate", "mean", "p99", "good"),
    [
        (950_000_000, 3_000_000, 15_000_000, (True, True, True, True)),
        (949_000_000, 3_000_000, 15_000_000, (False, True, True, True)),
        (GB, 3_000_001, 15_000_000, (True, True, False, True)),
        (2 * GB, 1, 15_000_001, (True, True, True, False)),
    ],
)
def test_throughput(rate: int, mean: int, p99: int, good: tuple[bool, ...]) -> None:
    found = throughput(throughput_rows(rate, mean, p99))
    assert [check.ok for check in found] == list(good)
    assert found[0].measured == rate / GB


def test_throughput_is_that_of_the_engine() -> None:
    name = "throughput/windows: copied by the engine"
    one = row("throughput/windows", GB)
    total = one.moved_bytes * one.rounds
    for engine_bytes, good in ((total * 9 // 10, True), (total * 8 // 10, False)):
        rows = throughput_rows(GB, 1, 1, engine_bytes)
        assert verdicts(throughput(rows))[name] is good


def overlap_rows(ours_ms: int, books_ms: int, large_ms: int) -> list[Row]:
    def at(role: str, ms: int, **changes: Any) -> Row:  # noqa: ANN401
        size = {"folio_bytes": 4096, "moved_bytes": 40 * MIB, "channel_mbps": 25}
        return row(role, 40 * MIB * 1000 // ms, **{**size, **changes})

    return [
        at("overlap/windows", ours_ms),
        at("overlap/posted", ours_ms * 2),
        at("overlap/bookkeeping", books_ms, channel_mbps=0),
        at("overlap/copying", large_ms, folio_bytes=2 * MIB),
    ]


@pytest.mark.parametrize(
    ("ours", "books", "large", "good"),
    [
        # 40 MiB take 16 channels of 25 MB/s 104.9 ms.
        (120, 50, 200, True),
        (121, 50, 200, False),
        (114, 50, 100, True),
        (116, 50, 100, False),
        (229, 200, 100, True),
        (231, 200, 100, False),
    ],
)
def test_overlap(ours: int, books: int, large: int, good: bool) -> None:
    (check,) = overlap(overlap_rows(ours, books, large))
    assert check.ok is good
    assert f"posted design {ours * 2}" in check.detail


def touch_rows(lost: int, stock: int, size: int = 4096) -> list[Row]:
    return [
        row("toucher/stock", GB, engine="stock", folio_bytes=size, touch=touch(stock)),
        row("toucher/windows", GB, folio_bytes=size, touch=touch(lost)),
        row("toucher/posted", GB, folio_bytes=size, touch=touch(10 * stock)),
    ]


def test_toucher() -> None:
    rows = [*touch_rows(5000, 5000), *touch_rows(5001, 5000, 2 * MIB)]
    assert verdicts(toucher(rows)) == {"toucher: 4 KiB": True, "toucher: 2 MiB": False}
    # A loss of zero is within any limit.
    assert toucher(touch_rows(0, 0))[0].ok
    assert not toucher(touch_rows(7, 0))[0].ok


def test_toucher_needs_the_same_total() -> None:
    rows = touch_rows(1, 1)
    rows[0] = msgspec.structs.replace(rows[0], moved_bytes=2 * MIB)
    with pytest.raises(PageferryError, match="same total"):
        toucher(rows)
    with pytest.raises(PageferryError, match="no thread touched"):
        toucher([msgspec.structs.replace(one, touch=None) for one in touch_rows(1, 1)])


def limit_row(
    times: str,
    p99_us: int,
    *,
    slowed: bool = False,
    over: int = 0,
    limit_us: int = 1000,
) -> Row:
    return row(
        f"limit/{times}/slowed" if slowed else f"limit/{times}",
        GB,
        max_unmapped_us=limit_us,
        unmapped_ns=unmapped(p99_us * 500, p99_us * 1000),
        over_limit_folios=over,
        slowed=SLOWED if slowed else None,
    )


def alone_row(p99_us: int) -> Row:
    return row(ALONE, GB, unmapped_ns=unmapped(p99_us * 500, p99_us * 1000))


@pytest.mark.parametrize(
    ("one", "good"),
    [
        (limit_row("2", 1300), True),
        (limit_row("2", 1301), False),
        # Folios count as over the limit only if one folio fits less than twice.
        (limit_row("2", 1301, over=5), False),
        (limit_row("0.5", 1000), True),
        (limit_row("0.5", 2000), False),
        (limit_row("0.5", 2000, over=5), True),
        # Ten times slower: 50 folio times become 5, 20 become two, and 5 become a half.
        (limit_row("50", 1301, slowed=True, over=5), False),
        (limit_row("50", 1299, slowed=True), True),
        (limit_row("20", 1301, slowed=True, over=5), False),
        (limit_row("5", 5000, slowed=True), False),
        (limit_row("5", 5000, slowed=True, over=5), True),
    ],
)
def test_limit(one: Row, good: bool) -> None:
    (check,) = limit([alone_row(700), one])
    assert check.ok is good, check
    if one.latency.slowed:
        assert "6 windows later" in check.detail
        assert "slowed" in check.name


def test_no_limit_helps_where_the_host_stops_the_machine() -> None:
    """The kernel must count the folios that exceed the limit even one by one."""
    for over, alone_us, good in ((5, 1301, True), (0, 1301, False), (5, 1300, False)):
        (check,) = limit([alone_row(alone_us), limit_row("2", 1301, over=over)])
        assert check.ok is good
        assert ("one by one" in check.detail) == (alone_us > 1300)


def test_no_limit_is_no_limit() -> None:
    with pytest.raises(PageferryError, match="no limit"):
        limit([alone_row(1), limit_row("2", 1000, limit_us=0)])
    with pytest.raises(PageferryError, match="missing"):
        limit([limit_row("2", 1000)])


def test_only_what_was_measured_is_judged() -> None:
    swept = msgspec.structs.replace(row("", GB), latency=Latency())
    assert judge([swept]) == []
    assert [c.name for c in judge(touch_rows(1, 1))] == ["toucher: 4 KiB"]
    rows = [*throughput_rows(GB, 1, 1), alone_row(1), limit_row("2", 1)]
    assert len(judge(rows)) == 5
    with pytest.raises(PageferryError, match="missing"):
        judge(rows[1:])
