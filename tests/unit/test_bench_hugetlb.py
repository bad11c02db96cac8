# SPDX-License-Identifier: GPL-2.0-only
"""What is different in `bench hugetlb`: sizes, plan and table."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from helpers.bench_data import MIB, measurement, page, result
from helpers.golden_files import check_golden
from pageferry.bench.hugetlb.spec import SPEC, parse_sizes
from pageferry.bench.move_pages.spec import MovePlan, make_rows
from pageferry.bench.options import parse_total
from pageferry.errors import PageferryError

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
GIB = 1024 * MIB


def plan() -> MovePlan:
    return MovePlan(
        sizes=(2 * MIB, GIB),
        engines=("stock", "dcbm"),
        threads=(2,),
        total_bytes=GIB,
        rounds=5,
        channels=(1, 4),
        hugetlb=True,
    )


def test_arguments() -> None:
    assert plan().arguments()[:4] == [
        "--hugetlb",
        "--from=0",
        "--to=1",
        "--sizes=2097152,1073741824",
    ]
    assert plan().variants() == ["stock", "dcbm:channels=1", "dcbm:channels=4"]
    # Not to be had later.
    assert plan().words() == ["hugepagesz=1024M", "hugepages=0:1,1:1"]


def test_sizes() -> None:
    assert parse_sizes("2M,1G") == (2 * MIB, GIB)
    # What other architectures have.
    assert parse_sizes("64K,32M") == (65536, 32 * MIB)


def test_the_largest_size_divides_the_total() -> None:
    assert parse_total("2G", GIB) == 2 * GIB
    assert parse_total("64M", 65536) == 64 * MIB
    with pytest.raises(PageferryError, match="multiple of 1024M"):
        parse_total("512M", GIB)


def test_table() -> None:
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
    rows = make_rows(plan(), samples)
    assert {row.bench for row in rows} == {"hugetlb"}
    text = page(SPEC, result(rows))
    check_golden(GOLDEN / "bench-hugetlb.txt", text + "\n")
