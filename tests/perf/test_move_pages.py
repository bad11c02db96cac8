# SPDX-License-Identifier: GPL-2.0-only
"""mtcopy must gain with two CPUs, and must not lose with one."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.quiet import measure
from pageferry.results.schema import Result

pytestmark = [pytest.mark.vm, pytest.mark.perf]

# The least rate as a share of stock's, by folio size.
WITH_TWO_CPUS = {4096: 0.97, 65536: 1.2, 2 << 20: 1.6}
CPUS_BUSY = dict.fromkeys(WITH_TWO_CPUS, 0.97)
MTCOPY = ("--engines", "mtcopy")


def too_slow(result: Result, wanted: dict[int, float], *, busy: bool) -> list[str]:
    """Describe all results below their share of stock's rate."""
    rows = {
        row.folio_bytes: row
        for row in result.rows
        if row.engine == "mtcopy" and row.busy is busy
    }
    assert rows.keys() == wanted.keys()
    assert all(row.verified for row in rows.values())
    # hugetlb folios are never split, so no count exists.
    moved = [row for row in rows.values() if row.bench != "hugetlb"]
    assert all(row.split_folios == 0 for row in moved)
    return [
        f"{size}: {rows[size].ratio_to_stock}, {least} wanted, "
        f"{rows[size].ratio_to_stock_spread}"
        for size, least in wanted.items()
        if (rows[size].ratio_to_stock or 0.0) < least
    ]


def test_faster_with_two_cpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Short moves and many rounds: a host's load changes within seconds, and both sides
    # of a ratio must be close in time.
    result = measure(
        tmp_path, capsys, "move-pages", *MTCOPY, "--total", "32M", "--rounds", "31"
    )
    assert too_slow(result, WITH_TWO_CPUS, busy=False) == []


def test_hugetlb_is_faster_with_two_cpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = (*MTCOPY, "--total", "32M", "--rounds", "31")
    result = measure(tmp_path, capsys, "hugetlb", *argv)
    assert too_slow(result, {2 << 20: WITH_TWO_CPUS[2 << 20]}, busy=False) == []


def test_not_slower_where_cpus_are_busy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # Measure both. The idle case shows whether the host was even.
    argv = ("--total", "64M", "--rounds", "21", "--busy=both", "--no-limit")
    result = measure(tmp_path, capsys, "move-pages", *MTCOPY, *argv)
    assert too_slow(result, CPUS_BUSY, busy=True) == []
