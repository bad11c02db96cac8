# SPDX-License-Identifier: GPL-2.0-only
"""`bench copy`: its rows, and the choice that the kernel would make."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from helpers.bench_data import page, result
from helpers.golden_files import check_golden
from pageferry.bench.copy.spec import (
    KERNEL_ROUTINES,
    LARGE_BYTES,
    MARGIN,
    SPEC,
    Copied,
    CopyPlan,
    choose,
    make_rows,
)

ROOT = Path(__file__).resolve().parents[2]
KIB = 1 << 10
PLAN = CopyPlan(sizes=(4 * KIB,), engines=(), total_bytes=1 << 30, rounds=5)


def copied(engine: str, size: int, elapsed_ns: int, **changes: Any) -> Copied:  # noqa: ANN401
    """Make one measurement of 1 GiB."""
    values: dict[str, Any] = {
        "engine": engine,
        "threads": 1,
        "folio_bytes": size,
        "memory": "cold",
        "round": 1,
        "moved_bytes": 1 << 30,
        "elapsed_ns": elapsed_ns,
        "chase_alone_per_s": 200_000_000,
        "chase_beside_per_s": 190_000_000,
        "verified": True,
    }
    return Copied(**{**values, **changes})


RATES = {
    ("boot", 512): (6.9, 8.8, 12.3),
    ("cold", 4): (6.3, 6.2, 6.1),
    ("cold", 2048): (6.4, 9.1, 12.0),
    ("read", 2048): (4.7, 5.8, 6.4),
}
LINES = [
    copied(engine, size * KIB, round(1e9 * (1 << 30) / 1e9 / rate), memory=memory)
    for (memory, size), rates in RATES.items()
    for engine, rate in zip(KERNEL_ROUTINES, rates, strict=True)
]


def test_a_page_for_people() -> None:
    lines = [
        *LINES,
        copied("string", 4 * KIB, 50_000_000, memory="warm", chase_alone_per_s=None),
        copied("pages", 4 * KIB, 90_000_000, threads=4, chase_alone_per_s=None),
    ]
    text = page(SPEC, result(make_rows(PLAN, lines)))
    check_golden(ROOT / "tests" / "golden" / "bench-copy.txt", text + "\n")


def test_the_choice_is_that_of_the_measurement_at_boot() -> None:
    found = make_rows(PLAN, LINES)
    chosen = {r.engine for r in found if r.copy.kernel_chooses}
    assert chosen == {"direct"}
    unknown = {r.copy.memory for r in found if r.copy.kernel_chooses is None}
    assert unknown == {"cold", "read"}


def test_the_shortest_time_counts() -> None:
    lines = [
        copied("pages", 512 * KIB, ns, memory="boot", round=number)
        for number, ns in enumerate((100, 200, 300), 1)
    ]
    lines += [
        copied("direct", 512 * KIB, ns, memory="boot", round=number)
        for number, ns in enumerate((120, 120, 120), 1)
    ]
    chosen = [r.engine for r in make_rows(PLAN, lines) if r.copy.kernel_chooses]
    assert chosen == ["pages"]


@pytest.mark.parametrize(
    ("speeds", "chosen"),
    [
        ({"pages": 100, "nontemporal": 106, "direct": 90}, "pages"),
        ({"pages": 100, "nontemporal": 107, "direct": 90}, "nontemporal"),
        ({"pages": 100, "nontemporal": 107, "direct": 108}, "direct"),
        ({"pages": 100, "nontemporal": 107}, "nontemporal"),
        ({"pages": 100, "wide": 300, "string": 200}, "pages"),
        ({"direct": 100}, None),
    ],
)
def test_the_kernel_keeps_pages_unless_another_is_faster(
    speeds: dict[str, float], chosen: str | None
) -> None:
    assert choose(speeds) == chosen


def test_the_constants_are_those_of_the_kernel() -> None:
    core = ROOT / "linux" / "tree" / "mm" / "migrate_offload"
    routine = (core / "copy_routine.c").read_text()
    header = (core / "copy.h").read_text()
    assert f"#define MIGRATE_COPY_MARGIN {MARGIN}\n" in routine
    assert "#define MIGRATE_COPY_TIMED_BYTES SZ_512K\n" in routine
    program = (ROOT / "bench" / "copy.c").read_text()
    assert "#define BOOT_BYTES (512UL << 10)\n" in program
    assert f"#define MIGRATE_COPY_LARGE_BYTES SZ_{LARGE_BYTES >> 10}K\n" in header
    for name in KERNEL_ROUTINES:
        assert f'= "{name}",' in routine


def test_others_are_unknown_without_a_second_cpu() -> None:
    (row,) = make_rows(PLAN, [copied("pages", 4 * KIB, 9, chase_alone_per_s=None)])
    assert (row.copy.chase_alone_per_s, row.copy.chase_ratio) == (None, None)
