# SPDX-License-Identifier: GPL-2.0-only
"""The plans of `bench move-pages` and `bench hugetlb`, and rows from measurements."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import msgspec
import pytest

from helpers.bench_data import MIB, measurement, page, result
from helpers.golden_files import check_golden
from pageferry.bench.hugetlb.spec import SPEC as HUGETLB
from pageferry.bench.hugetlb.spec import parse_sizes as parse_hugetlb_sizes
from pageferry.bench.move_pages.spec import SPEC, Measurement, MovePlan
from pageferry.bench.move_pages.spec import make_rows as rows_of
from pageferry.bench.options import (
    parse_sizes,
    parse_total,
)
from pageferry.errors import PageferryError
from pageferry.report.tables import moved_pages
from pageferry.results.schema import Row

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
GIB = 1024 * MIB


def plan(**changes: Any) -> MovePlan:  # noqa: ANN401
    base = MovePlan(
        sizes=(4096, 2 * MIB),
        engines=("stock", "cpu", "mtcopy"),
        threads=(2, 4),
        total_bytes=256 * MIB,
        rounds=5,
    )
    return dataclasses.replace(base, **changes)


def make_rows(samples: list[Measurement]) -> list[Row]:
    return rows_of(plan(), samples)


def by_engine(rows: list[Row]) -> dict[str, Row]:
    return {row.engine: row for row in rows}


def test_arguments() -> None:
    assert plan().arguments() == [
        "--from=0",
        "--to=1",
        "--sizes=4096,2097152",
        "--total-bytes=268435456",
        "--rounds=5",
        "--variants=stock,cpu,mtcopy:threads=2,mtcopy:threads=4",
        "--limit=1,2,4",
        "--busy=no",
    ]
    assert plan(busy="both").arguments()[-1] == "--busy=both"
    assert plan(max_unmapped_us=0).arguments()[-1] == "--max-unmapped-us=0"
    assert "--limit=none" in plan(with_limit=False).arguments()


def test_baseline_is_always_measured() -> None:
    assert plan(engines=("cpu",)).variants() == ["stock", "cpu"]
    assert plan(engines=("cpu",)).limits() == [1]
    assert plan(engines=("cpu",)).modules() == []
    assert plan().modules() == ["mtcopy"]


def test_measurements_are_counted() -> None:
    # 4 variants and 3 limits, 2 sizes, 5 rounds and a warm-up.
    assert plan().measurements() == 7 * 2 * 6
    assert plan(busy="both").measurements() == 2 * 7 * 2 * 6
    assert plan(busy="only").measurements() == 7 * 2 * 6


def test_sizes() -> None:
    assert parse_sizes("4K,64KiB,2M") == (4096, 65536, 2 * MIB)
    assert parse_sizes("all") == (4096, *[4096 << n for n in range(2, 10)])


def test_each_number_of_channels_is_a_variant() -> None:
    dma = plan(engines=("dcbm",), channels=(1, 16), channel_mbps=10)
    assert dma.variants() == ["stock", "dcbm:channels=1", "dcbm:channels=16"]
    assert dma.limits() == [1]
    assert dma.modules() == ["dcbm"]
    assert dma.simulated() == {"dmasim": "channels=16 bandwidth_mbps=10"}
    assert plan().simulated() == {}


def test_rows_tell_numbers_of_channels_apart() -> None:
    samples = [
        measurement("stock", 100),
        measurement("dcbm", 400, channels=1),
        measurement("dcbm", 50, channels=8),
    ]
    rows = {row.channels: row for row in make_rows(samples)}
    assert rows[1].ratio_to_stock == 0.25
    assert rows[8].ratio_to_stock == 2
    table = page(SPEC, result(make_rows(samples)))
    assert "channels" in table
    assert "channels" not in page(SPEC, result(make_rows(samples[:1])))


def test_ratio_is_the_median_of_round_ratios() -> None:
    # The machine is four times slower in round 2. The ratio of medians would be 1.5,
    # and the rounds' ratios are 2, 3 and 2.
    samples = [
        measurement("stock", 100, number=1),
        measurement("mtcopy", 50, number=1, threads=2),
        measurement("stock", 400, number=2),
        measurement("mtcopy", 200, number=2, threads=2),
        measurement("stock", 300, number=3),
        measurement("mtcopy", 100, number=3, threads=2),
    ]
    row = by_engine(make_rows(samples))["mtcopy"]
    assert row.ratio_to_stock == 2
    assert row.ratio_to_stock_spread is not None
    assert row.ratio_to_stock_spread.max == 3
    assert row.bytes_per_s is not None
    assert row.bytes_per_s.median == 64 * MIB * 10**9 // 100
    assert row.rounds == 3


def test_warm_up_round_does_not_count() -> None:
    samples = [
        measurement("stock", 1, number=0, split=99),
        measurement("stock", 100, number=1),
    ]
    (row,) = make_rows(samples)
    assert row.rounds == 1
    assert row.split_folios == 0
    assert row.bytes_per_s is not None
    assert row.bytes_per_s.max == 64 * MIB * 10**9 // 100


def test_limit_has_as_many_cpus() -> None:
    samples = [
        measurement("stock", 100),
        measurement("mtcopy", 100, threads=2),
        measurement("mtcopy", 100, threads=0),
        measurement("limit", 50, threads=1),
        measurement("limit", 25, threads=2),
    ]
    rows = {(row.engine, row.threads): row for row in make_rows(samples)}
    assert rows["stock", 1].share_of_limit == 0.5
    assert rows["mtcopy", 2].share_of_limit == 0.25
    assert rows["mtcopy", 0].share_of_limit == 0.25
    assert rows["mtcopy", 0].limit_threads == 2
    assert rows["limit", 2].share_of_limit is None
    assert rows["limit", 2].ratio_to_stock is None


def test_busy_rows_compare_with_busy_stock() -> None:
    samples = [
        measurement("stock", 100),
        measurement("cpu", 100),
        measurement("stock", 200, busy=True),
        measurement("cpu", 400, busy=True),
    ]
    rows = {(row.engine, row.busy): row for row in make_rows(samples)}
    assert rows["cpu", False].ratio_to_stock == 1
    assert rows["cpu", True].ratio_to_stock == 0.5


def test_split_folios_add_up_or_are_unknown() -> None:
    known = [measurement("stock", 9, number=n, split=3) for n in (1, 2)]
    assert make_rows(known)[0].split_folios == 6
    unknown = [*known, measurement("stock", 9, number=3, split=None)]
    assert make_rows(unknown)[0].split_folios is None


def table_samples() -> list[Measurement]:
    samples = []
    for number in (1, 2, 3):
        slower = 1000 * number
        for size, factor in ((4096, 3), (65536, 2), (2 * MIB, 1)):
            base = 200_000_000 * factor + slower
            samples += [
                measurement("stock", base, number=number, folio_bytes=size),
                measurement(
                    "mtcopy",
                    base // 2 + 7 * slower,
                    number=number,
                    threads=2,
                    folio_bytes=size,
                    split=5 if size == 65536 else 0,
                    engine_bytes=64 * MIB,
                ),
                measurement("limit", base // 4, number=number, folio_bytes=size),
                measurement(
                    "limit", base // 8, number=number, threads=2, folio_bytes=size
                ),
            ]
    samples.append(measurement("stock", 999_999_999, busy=True, split=None))
    return samples


def test_pages_are_counted_without_the_limit() -> None:
    rows = make_rows(table_samples())
    # 3 rounds, 3 sizes, 2 engines, and one busy round of 64 MiB each.
    assert moved_pages(rows) == (3 * 3 * 2 + 1) * 64 * MIB // 4096


def test_table() -> None:
    text = page(SPEC, result(make_rows(table_samples())))
    check_golden(GOLDEN / "bench-move-pages.txt", text + "\n")


# --- hugetlb ------------------------------------------------------------------


def hugetlb() -> MovePlan:
    return MovePlan(
        sizes=(2 * MIB, GIB),
        engines=("stock", "dcbm"),
        threads=(2,),
        total_bytes=GIB,
        rounds=5,
        channels=(1, 4),
        hugetlb=True,
    )


def test_hugetlb_arguments() -> None:
    assert hugetlb().arguments()[:4] == [
        "--hugetlb",
        "--from=0",
        "--to=1",
        "--sizes=2097152,1073741824",
    ]
    assert hugetlb().variants() == ["stock", "dcbm:channels=1", "dcbm:channels=4"]
    # Pages of 1 GiB can only be reserved at boot.
    assert hugetlb().words() == ["hugepagesz=1024M", "hugepages=0:1,1:1"]


def test_hugetlb_sizes() -> None:
    assert parse_hugetlb_sizes("2M,1G") == (2 * MIB, GIB)
    # Other architectures have these sizes.
    assert parse_hugetlb_sizes("64K,32M") == (65536, 32 * MIB)


def test_the_largest_size_divides_the_total() -> None:
    assert parse_total("2G", GIB) == 2 * GIB
    assert parse_total("64M", 65536) == 64 * MIB
    with pytest.raises(PageferryError, match="multiple of 1024M"):
        parse_total("512M", GIB)


def test_hugetlb_table() -> None:
    samples = []
    for number in (1, 2, 3):
        base = 200_000_000 + 1000 * number
        samples += [
            measurement("stock", base, number=number, split=None),
            measurement(
                "mtcopy",
                base * 5 // 9,
                number=number,
                threads=2,
                split=None,
                engine_bytes=64 * MIB,
            ),
            measurement("dcbm", base // 3, number=number, channels=4, split=None),
            measurement("limit", base // 4, number=number, split=None),
        ]
    samples = [
        msgspec.structs.replace(sample, folio_bytes=2 * MIB) for sample in samples
    ]
    rows = rows_of(hugetlb(), samples)
    assert {row.bench for row in rows} == {"hugetlb"}
    text = page(HUGETLB, result(rows))
    check_golden(GOLDEN / "bench-hugetlb.txt", text + "\n")
