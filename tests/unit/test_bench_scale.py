# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale`: the program's lines, rows, and the cases that --check rejects."""

from __future__ import annotations

import json
from typing import Any

import pytest

from helpers.bench_data import result
from helpers.scale_data import MIB, life, movers, samples, sizes
from pageferry.bench.lines import Done, parse_line
from pageferry.bench.scale.rows import (
    LINES,
    Life,
    Movers,
    Sizes,
    make_rows,
    regressions,
    samples_of,
)
from pageferry.errors import PageferryError
from pageferry.results.schema import Grown, decode, encode
from pageferry.units import GIB

# As the program prints them.
PRINTED = (
    '{"type": "sizes", "engine": "off", "moved_bytes": 8388608, "elapsed_ns": 5000000, '
    '"engine_bytes": null, "size_bytes": 4194304, "region_bytes": 4194304, '
    '"call_pages": 256, "verified": true}',
    '{"type": "movers", "engine": "mtcopy", "moved_bytes": 16777216, '
    '"elapsed_ns": 9000000, "engine_bytes": 4096, "movers": 8, '
    '"together": "threads", "call_pages": 256, '
    '"locks": "&mm->mmap_lock-R 12, lock#2 1", "verified": true}',
    '{"type": "life", "engine": "off", "moved_bytes": 20971520, "elapsed_ns": 503, '
    '"engine_bytes": null, "rounds": 4, "calls": 16, "used_bytes": [5, 6], '
    '"slab_bytes": [3, 3], "percpu_bytes": [1, 1], "pool_objects": null, '
    '"verified": true}',
)


def test_lines_of_the_program_are_read() -> None:
    listed, moving, lived = (parse_line(text, *LINES) for text in PRINTED)
    assert isinstance(listed, Sizes)
    assert isinstance(moving, Movers)
    assert isinstance(lived, Life)
    assert moving.locks == "&mm->mmap_lock-R 12, lock#2 1"
    assert lived.used_bytes == (5, 6)
    found = samples_of("off", [listed, moving, lived, Done()])
    assert found == [listed, moving, lived]
    with pytest.raises(PageferryError, match="unexpected"):
        parse_line(PRINTED[2].replace("[5, 6]", "[5]"), *LINES)


def test_what_says_nothing_is_a_failure() -> None:
    with pytest.raises(PageferryError, match="measured nothing"):
        samples_of("off", [Done()])
    with pytest.raises(PageferryError, match="not verified"):
        samples_of("off", [life("off", verified=False)])
    with pytest.raises(PageferryError, match="moved nothing"):
        samples_of("off", [sizes("off", MIB, 5, moved_bytes=0)])
    with pytest.raises(PageferryError, match="moved nothing"):
        samples_of("off", [sizes("off", MIB, 0)])


def test_rows() -> None:
    rows = make_rows(samples())
    assert [(row.scale.part, row.engine) for row in rows[:4]] == [
        ("sizes", "stock"),
        ("sizes", "off"),
        ("sizes", "mtcopy"),
        ("sizes", "stock"),
    ]
    listed = [row for row in rows if row.scale.part == "sizes" and row.engine == "off"]
    assert [(r.scale.size_bytes, r.scale.call_pages) for r in listed] == [
        (64 * MIB, 0),
        (16 * GIB, 0),
        (64 * MIB, 256),
        (16 * GIB, 256),
    ]
    assert listed[2].instructions_per_folio == 3200
    assert listed[2].ratio_to_stock == pytest.approx(3200 / 6900)
    assert listed[2].scale.pages_per_guest_s == 312_500
    assert listed[2].scale.growth == 1
    moving = [r for r in rows if r.scale.part == "movers" and r.engine == "mtcopy"]
    assert [(r.scale.together, r.scale.movers, r.rounds) for r in moving] == [
        ("processes", 1, 3),
        ("processes", 64, 3),
        ("threads", 1, 3),
        ("threads", 64, 3),
    ]
    # The median, and its growth from the fewest movers.
    assert moving[1].instructions_per_folio == 2950 + 10 + 64
    assert moving[1].scale.growth == pytest.approx(3024 / 2961)
    assert (moving[1].threads, rows[0].threads) == (0, 1)
    lived = rows[-1]
    assert lived.scale.used_bytes == Grown(300 * MIB, 300 * MIB - 4096)
    assert lived.scale.pool_objects is None
    assert (lived.instructions_per_folio, lived.ratio_to_stock) == (None, None)
    assert (lived.rounds, lived.moved_bytes) == (3600, 5 * MIB)
    document = result(rows)
    assert decode(encode(document)) == document
    assert "scale" in json.loads(encode(document))["rows"][0]


def test_the_smallest_list_alone_has_no_stock() -> None:
    (row,) = make_rows([sizes("off", 64 * MIB, 2900)])
    assert (row.ratio_to_stock, row.scale.growth) == (None, 1)
    assert regressions([row]) == []


def test_check_passes_without_growth() -> None:
    assert regressions(make_rows(samples())) == []


@pytest.mark.parametrize(
    ("engine", "cost", "refused"),
    [("off", 10_500, False), ("off", 10_501, True), ("stock", 20_000, False)],
)
def test_check_of_long_lists(engine: str, cost: int, refused: bool) -> None:
    for calls in (0, 256):
        rows = make_rows(
            [
                sizes(engine, 64 * MIB, 10_000, call_pages=calls),
                sizes(engine, GIB, cost, call_pages=calls),
                # Other calls are another thing.
                sizes(engine, GIB, 15_000, call_pages=256 - calls),
            ]
        )
        found = regressions(rows)
        assert bool(found) is refused
        if refused:
            how = "many calls" if calls else "one call"
            assert found == [
                f"off: a page of 1 GiB in {how} costs 5.0% more than a page of the "
                "smallest list, 5% is allowed"
            ]


@pytest.mark.parametrize(
    ("engine", "cost", "refused"),
    [("off", 10_000, False), ("off", 10_001, True), ("stock", 9_000, False)],
)
def test_check_of_movers_beside_stock(engine: str, cost: int, refused: bool) -> None:
    stock = [movers("stock", n, 10_000) for n in (1, 64)]
    rows = make_rows([*stock[: 1 + (engine != "stock")], movers(engine, 64, cost)])
    assert bool(regressions(rows)) is refused
    # Threads are compared with threads.
    other = [movers("stock", 64, 10_000), movers("off", 64, cost, together="threads")]
    assert regressions(make_rows(other)) == []


@pytest.mark.parametrize(
    ("repeats", "cost", "refused"),
    [(3, 3_150, False), (3, 3_152, True), (1, 4_000, False)],
)
def test_check_of_an_engine_that_loses(repeats: int, cost: int, refused: bool) -> None:
    rows = make_rows(
        [
            *[movers("off", 8, 3_000) for _ in range(repeats)],
            *[movers("dcbm", 8, cost) for _ in range(repeats)],
        ]
    )
    assert bool(regressions(rows)) is refused


@pytest.mark.parametrize(
    ("stock", "ours", "refused"),
    [
        (0, 128 * 1024, False),
        (0, 128 * 1024 + 1, True),
        (4096, 128 * 1024 + 4096, False),
        # Memory that stock Linux gave back does not count.
        (-MIB, 128 * 1024, False),
        (0, -MIB, False),
        (MIB, 0, False),
    ],
)
def test_check_of_memory(stock: int, ours: int, refused: bool) -> None:
    rows = make_rows([life("stock", stock), life("off", ours)])
    assert bool(regressions(rows)) is refused


def test_check_of_each_kind_of_memory() -> None:
    grown = {
        "slab_bytes": (MIB, 2 * MIB),
        "percpu_bytes": (MIB, 2 * MIB),
        "pool_objects": (8, 41),
    }
    for name, pair in grown.items():
        changes: dict[str, Any] = {name: pair}
        (text,) = regressions(make_rows([life("off", **changes)]))
        assert "in 3,600 rounds" in text
    assert "33 objects" in text and "32 objects is allowed" in text
    assert regressions(make_rows([life("off", pool_objects=(8, 40))])) == []
