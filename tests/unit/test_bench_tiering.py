# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion` and `bench promotion`: plans, lines, rows and tables."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from helpers.bench_data import page, result
from helpers.golden_files import check_golden
from helpers.tier_data import MIB, call, demotion, promotion
from pageferry.bench import spec
from pageferry.bench.demotion.spec import (
    METHODS,
    SINGLE,
    SPEC,
    Demotion,
    DemotionPlan,
)
from pageferry.bench.lines import Environment, Line, parse_line
from pageferry.bench.promotion.spec import PromotionPlan
from pageferry.report.tables import moved_pages
from pageferry.results.schema import Row

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


AnyPlan = DemotionPlan | PromotionPlan


def plan(
    kind: type[DemotionPlan] | type[PromotionPlan] = DemotionPlan,
    **changes: Any,  # noqa: ANN401
) -> AnyPlan:
    base = kind(
        sizes=(4096, 2 * MIB),
        engines=("stock", "off", "mtcopy", "dcbm"),
        channels=(4,),
        channel_mbps=0,
        total_bytes=64 * MIB,
        rounds=5,
        from_node=0,
        to_node=1,
    )
    return dataclasses.replace(base, **changes)


def make_rows(bench: str, lines: Sequence[Line]) -> list[Row]:
    made = spec.load(bench).make_rows
    assert made is not None
    return made(None, lines)


def test_arguments() -> None:
    assert plan().arguments() == [
        "--from=0",
        "--to=1",
        "--sizes=4096,2097152",
        "--total-bytes=67108864",
        "--rounds=5",
        "--variants=stock,off,mtcopy:threads=2,dcbm:channels=4",
        "--parts=calls,reclaim",
        "--pressure=reclaim",
        "--call-bytes=4194304",
    ]
    back = plan(PromotionPlan, from_node=1, to_node=0, touch="read").arguments()
    assert back[:2] == ["--from=1", "--to=0"]
    assert back[-1] == "--touch=read"


def test_modules() -> None:
    assert plan().modules() == ["mtcopy", "dcbm"]
    assert plan().simulated() == {"dmasim": "channels=4 bandwidth_mbps=0"}
    assert plan(engines=("off",)).simulated() == {}
    assert plan(engines=("off",)).variants() == ["stock", "off"]


def test_measurements_are_counted() -> None:
    # 4 variants; 3 lengths of lists and 2 sizes; 5 rounds and a warm-up.
    assert plan().measurements() == 4 * (3 + 2) * 6
    assert plan(parts=("calls",)).measurements() == 4 * 3 * 6
    assert plan(parts=("reclaim",)).measurements() == 4 * 2 * 6
    assert plan(PromotionPlan).measurements() == 4 * 2 * 6


def test_a_line_of_a_kernel_without_psi_is_read() -> None:
    fields = msgspec.to_builtins(demotion("stock", 9))
    fields |= {"stall_some_us": None, "engine_bytes": None}
    line = parse_line(json.dumps({"type": fields.pop("type"), **fields}), Demotion)
    assert isinstance(line, Demotion)
    assert line.stall_some_us is None
    environment = parse_line(
        '{"type": "environment", "bench": "demotion", "release": "6", "version": "#1",'
        ' "psi": false, "lru_gen_found": null, "memory_tiers": "4: 0; 56: 1"}'
    )
    assert isinstance(environment, Environment)
    assert environment.settings["psi"] is False
    assert environment.settings["memory_tiers"] == "4: 0; 56: 1"


def test_lists_are_held_against_single_pages_of_the_same_round() -> None:
    lines: list[Line] = []
    # The machine is ten times slower in round 2.
    for number, slow in ((0, 1), (1, 1), (2, 10), (3, 1)):
        for method, elapsed in zip(METHODS, (8000, 4000, 1000), strict=True):
            lines.append(call("stock", method, elapsed * slow, round=number))
    rows = {row.demotion.method: row for row in make_rows("demotion", lines)}
    assert list(rows) == list(METHODS)
    one, listed, huge = (rows[m].demotion.ratio_to_single for m in METHODS)
    assert one is not None
    assert listed is not None
    assert huge is not None
    assert (one.median, listed.median, huge.median) == (1, 2, 8)
    assert rows[SINGLE].rounds == 3
    assert rows[SINGLE].demotion.folios_per_call == 1


def by_engine(rows: list[Row]) -> dict[str, Row]:
    return {row.engine: row for row in rows}


def test_engines_have_their_share_and_stock_has_none() -> None:
    half = {"engine_bytes": 32 * MIB, "cpu_bytes": 32 * MIB, "batches": 16}
    none = {"engine_bytes": 0, "cpu_bytes": 0, "batches": 0}
    rows = by_engine(
        make_rows(
            "demotion",
            [demotion("stock", 200, **none), demotion("mtcopy", 100, **half)],
        )
    )
    assert rows["stock"].demotion.share_offloaded is None
    assert rows["stock"].engine_bytes is None
    assert rows["mtcopy"].demotion.share_offloaded == 0.5
    assert rows["mtcopy"].demotion.folios_per_batch == 2
    assert rows["mtcopy"].ratio_to_stock == 2
    assert rows["mtcopy"].demotion.pgdemote_direct == 16384


def test_what_no_engine_was_asked_for_counts_as_the_cpus() -> None:
    few = {"engine_bytes": 16 * MIB, "cpu_bytes": 0, "batches": 8}
    (row,) = make_rows("demotion", [demotion("mtcopy", 100, **few)])
    assert row.demotion.share_offloaded == 0.25


def test_stalls_are_known_or_null() -> None:
    (row,) = make_rows("demotion", [demotion("stock", 100)])
    assert row.demotion.stall_some_us is None
    stalls = [
        demotion("stock", 100, round=n, stall_some_us=n, stall_full_us=0)
        for n in (1, 2, 3)
    ]
    (row,) = make_rows("demotion", stalls)
    assert row.demotion.stall_some_us is not None
    assert row.demotion.stall_some_us.median == 2


def test_failed_tries_are_no_demotion() -> None:
    tried = [
        demotion("stock", 150, moving_ns=100),
        demotion("mtcopy", 100, moving_ns=50),
    ]
    rows = by_engine(make_rows("demotion", tried))
    assert rows["mtcopy"].ratio_to_stock == 2
    for row in rows.values():
        assert row.demotion.futile_ns is not None
        assert row.demotion.futile_ns.median == 50


def test_times_of_one_kind_are_compared() -> None:
    """If one time is unknown, all work of reclaim counts, of all tasks."""
    tried = [
        demotion("stock", 150, moving_ns=100),
        demotion("mtcopy", 100, moving_ns=None),
    ]
    rows = make_rows("demotion", tried)
    assert by_engine(rows)["mtcopy"].ratio_to_stock == 1.5
    assert [row.demotion.futile_ns for row in rows] == [None, None]
    assert "It was not traced" in page(SPEC, result(rows))


def test_what_a_thread_lost() -> None:
    (row,) = make_rows("promotion", [promotion("stock", 100)])
    assert row.touch is not None
    assert row.touch.lost_ns.median == 50_000_000
    assert 2_097_152 <= row.touch.p99_ns <= 3_000_000
    assert row.promotion.pgpromote_success == 15360
    assert row.promotion.left_bytes == 2 * MIB
    assert row.promotion.first_promotion_ns is not None


def test_demotion_tables() -> None:
    lines: list[Line] = []
    for number in (1, 2, 3):
        for engine, factor in (("stock", 2), ("mtcopy", 1)):
            share = {"engine_bytes": 64 * MIB, "cpu_bytes": 0, "batches": 32}
            given = share if engine == "mtcopy" else {}
            at = {"round": number}
            for method, elapsed in zip(METHODS, (9, 3, 1), strict=True):
                lines.append(
                    call(engine, method, elapsed * 10**7 * factor + number, **at)
                )
            moving = factor * 10**8 + number
            given = {**given, "moving_ns": moving}
            lines.append(demotion(engine, moving + 5 * 10**6, **given, **at))
    rows = make_rows("demotion", lines)
    assert moved_pages(rows) == 3 * 2 * (3 * 1024 + 16384)
    text = page(SPEC, msgspec.structs.replace(result(rows), published=[{}]))
    check_golden(GOLDEN / "bench-demotion.txt", text + "\n")


def test_promotion_table() -> None:
    lines: list[Line] = [
        promotion("stock", 200_000_000),
        promotion(
            "mtcopy",
            100_000_000,
            engine_bytes=31 * MIB,
            cpu_bytes=31 * MIB,
            batches=31,
        ),
    ]
    text = page(spec.load("promotion"), result(make_rows("promotion", lines)))
    check_golden(GOLDEN / "bench-promotion.txt", text + "\n")
