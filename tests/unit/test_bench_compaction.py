# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction`: plan, lines, rows and table."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.bench_data import page, result
from helpers.compaction_data import busy, compaction
from helpers.golden_files import check_golden
from pageferry.bench.compaction.rows import Compaction, make_rows, warn_of_few
from pageferry.bench.compaction.spec import (
    SPEC,
    CompactionPlan,
    parse_total,
)
from pageferry.bench.lines import Line, parse_line
from pageferry.results.schema import Row

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
MIB = 1 << 20


def plan(**changes: Any) -> CompactionPlan:  # noqa: ANN401
    base = CompactionPlan(
        engines=("stock", "off", "mtcopy", "dcbm"),
        states=("idle", "busy"),
        channels=(4,),
        channel_mbps=0,
        total_bytes=0,
        count=0,
        rounds=5,
        from_node=1,
        to_node=1,
    )
    return dataclasses.replace(base, **changes)


def test_arguments() -> None:
    assert plan().arguments() == [
        "--node=1",
        "--total-bytes=0",
        "--count=0",
        "--states=idle,busy",
        "--rounds=5",
        "--variants=stock,off,mtcopy:threads=2,dcbm:channels=4",
    ]
    assert plan(cpu=3).arguments()[-1] == "--cpu=3"


def test_channels_that_follow_what_stock_migrates() -> None:
    with_rate = plan(channel_percent=150)
    assert with_rate.arguments()[-1] == "--channel-percent=150"
    # Without channels, no rate can be set.
    assert with_rate.arguments()[:-1] == plan().arguments()
    without = dataclasses.replace(with_rate, engines=("stock", "off"))
    assert not any("percent" in word for word in without.arguments())

    lines: list[Line] = [compaction("stock", 1000)]
    lines += [
        compaction("dcbm", 900, round=number, channel_mbps=mbps)
        for number, mbps in enumerate((700, 800, 750), start=1)
    ]
    rows = rows_by(lines)
    assert rows[False, "dcbm"].channel_mbps == 750
    assert rows[False, "stock"].channel_mbps is None
    drawn = msgspec.structs.replace(result(list(rows.values())), settings={})
    assert "dcbm, 4 channels of 750 MB/s" in page(SPEC, drawn)


def test_ticks_of_all_rounds_count_together() -> None:
    """One round has only a few ticks, too few for a share."""
    ticks = ((2, 1), (2, 1), (3, 0))
    lines: list[Line] = [
        compaction("dcbm", 30, round=number, system_ns=system, idle_ns=idle)
        for number, (system, idle) in enumerate(ticks, start=1)
    ]
    (row,) = make_rows(plan(), lines)
    assert row.compaction.system_share == pytest.approx(7 / 9)
    assert row.compaction.idle_share == pytest.approx(2 / 9)


def test_modules() -> None:
    assert plan().modules() == ["mtcopy", "dcbm", "migrate_compact_test"]
    words = "channels=4 descriptors=512 bandwidth_mbps=0 cpu=1 coalesce_us=100"
    assert plan().simulated() == {"dmasim": words}
    assert plan(engines=("off",)).simulated() == {}
    assert plan(engines=("off",)).modules() == ["migrate_compact_test"]


def test_measurements_are_counted() -> None:
    # 4 variants; 5 rounds and a warm-up; with and without a hog.
    assert plan().measurements() == 4 * 6 * 2
    assert plan(states=("busy",)).measurements() == 4 * 6


def test_totals() -> None:
    assert parse_total("auto") == 0
    assert parse_total("512M") == 512 * MIB


def test_a_line_of_an_unpatched_kernel_is_read() -> None:
    fields = msgspec.to_builtins(compaction("stock", 9))
    fields |= {"compact_migrate_scanned": None, "engine_bytes": None}
    line = parse_line(json.dumps({"type": fields.pop("type"), **fields}), Compaction)
    assert isinstance(line, Compaction)
    assert line.compact_migrate_scanned is None
    (row,) = make_rows(plan(), [line])
    assert row.engine_bytes is None


def rows_by(lines: list[Line]) -> dict[tuple[bool, str], Row]:
    return {(row.busy, row.engine): row for row in make_rows(plan(), lines)}


def test_wall_time_is_of_each_huge_page() -> None:
    rows = rows_by(
        [
            compaction("stock", 1000),
            # This one is equally fast, but ran out of memory earlier.
            compaction("dcbm", 500, allocated=50, ended="memory"),
        ]
    )
    ratio = rows[False, "dcbm"].compaction.wall_ratio_to_stock
    assert ratio is not None
    assert ratio.median == 1
    assert rows[False, "dcbm"].ratio_to_stock == 1
    allocated = rows[False, "dcbm"].compaction.allocated_pages
    assert allocated is not None
    assert allocated.median == 50


def test_shares_are_of_what_was_accounted_for() -> None:
    half = {"thread_ns": 450, "system_ns": 480, "idle_ns": 480}
    rows = rows_by([compaction("stock", 1000), compaction("dcbm", 900, **half)])
    row = rows[False, "dcbm"]
    assert row.compaction.system_share == 0.5
    assert row.compaction.idle_share == 0.5
    assert row.compaction.system_share_to_stock is not None
    assert row.compaction.system_share_to_stock.median == 0.5
    assert row.compaction.thread_ratio_to_stock is not None
    assert row.compaction.thread_ratio_to_stock.median == 0.45
    assert row.compaction.thread_share_to_stock is not None
    assert row.compaction.thread_share_to_stock.median == 0.5


def test_a_hog_is_compared_in_the_same_time() -> None:
    rows = rows_by([busy("stock", 1000, 100), busy("dcbm", 800, 88)])
    row = rows[True, "dcbm"]
    assert row.compaction.hog_ratio_to_stock is not None
    assert row.compaction.hog_ratio_to_stock.median == pytest.approx(1.1)
    assert row.compaction.hog_iterations is not None
    assert row.compaction.hog_iterations.median == 88
    assert (
        rows_by([compaction("stock", 9)])[False, "stock"].compaction.hog_iterations
        is None
    )


def test_a_hog_has_the_rest_of_the_time_that_stock_took() -> None:
    alone = {"alone_iterations": 20, "alone_ns": 100}
    rows = rows_by(
        [
            busy("stock", 1000, 100, **alone),
            # 80 meanwhile, and 40 in the remaining 200 ns.
            busy("dcbm", 800, 80, **alone),
            # The part that was done when stock had finished.
            busy("mtcopy", 1250, 110, **alone),
            busy("cpu", 500, 80, alone_iterations=0, alone_ns=0),
        ]
    )
    ratios = {
        engine: row.compaction.hog_until_stock_is_done
        for (_, engine), row in rows.items()
    }
    assert ratios["dcbm"] is not None
    assert ratios["dcbm"].median == pytest.approx(1.2)
    assert ratios["mtcopy"] is not None
    assert ratios["mtcopy"].median == pytest.approx(0.88)
    assert ratios["cpu"] is None
    idle = rows_by([compaction("stock", 9)])[False, "stock"]
    assert idle.compaction.hog_until_stock_is_done is None


def test_the_warm_up_round_does_not_count() -> None:
    lines: list[Line] = [
        compaction("stock", 10**9, round=0),
        *(compaction("stock", 1000 * n, round=n) for n in (1, 2, 3)),
    ]
    (row,) = make_rows(plan(), lines)
    assert row.rounds == 3
    assert row.compaction.wall_ns is not None
    assert row.compaction.wall_ns.max == 3000


def test_engines_have_their_share_and_stock_has_none() -> None:
    some = {"engine_bytes": 14_000 * 4096, "cpu_bytes": 14_000 * 4096}
    batches = {"offered_folios": 14_000, "batches": 56}
    rows = rows_by(
        [
            compaction("stock", 9, engine_bytes=0, cpu_bytes=0),
            compaction("dcbm", 9, **some, **batches),
        ]
    )
    assert rows[False, "stock"].engine_bytes is None
    assert rows[False, "dcbm"].compaction.share_offloaded == 0.5
    assert rows[False, "dcbm"].compaction.folios_per_batch == 250


def test_what_was_measured_again_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    warn_of_few([compaction("stock", 9)])
    assert not capsys.readouterr().err
    warn_of_few([compaction("stock", 9, repeated=2), compaction("dcbm", 9)])
    said = capsys.readouterr().err
    assert "2 measurements were repeated" in said
    assert "at worst" not in said
    few = compaction("dcbm", 9, repeated=3, allocated=60, ended="memory")
    warn_of_few([compaction("stock", 9), few])
    assert "at worst 60 of 100 (memory)" in capsys.readouterr().err


def test_table() -> None:
    lines: list[Line] = []
    for number in (1, 2, 3):
        at = {"round": number}
        copied = {"engine_bytes": 28_000 * 4096, "cpu_bytes": 0}
        slept = {"idle_ns": 20 * 10**7, "system_ns": 70 * 10**7}
        lines += [
            compaction("stock", 10**9 + number, **at),
            compaction("dcbm", 9 * 10**8, thread_ns=7 * 10**8, **slept, **copied, **at),
            busy("stock", 2 * 10**9, 10**9, **at),
            busy("dcbm", 19 * 10**8, 10**9, **copied, **at),
        ]
    drawn = result(make_rows(plan(), lines))
    settings = {"from_node": 0, "to_node": 0, "caller_cpu": 0}
    drawn = msgspec.structs.replace(drawn, settings=settings, published=[{}])
    text = page(SPEC, drawn)
    check_golden(GOLDEN / "bench-compaction.txt", text + "\n")
