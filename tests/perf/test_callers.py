# SPDX-License-Identifier: GPL-2.0-only
"""Engines must gain for the kernel's own migrations, and must not cost."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.quiet import measure
from pageferry.results.schema import RatioSpread, Row

pytestmark = [pytest.mark.vm, pytest.mark.perf]

PMD_BYTES = 2 << 20


def median_of(ratio: RatioSpread | None) -> float:
    assert ratio is not None
    return ratio.median


def share_of_system(row: Row) -> float:
    assert row.compaction.system_share
    return row.compaction.system_share


def test_compaction_takes_less_of_its_cpu(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A DMA engine is no slower, and leaves a fifth of the CPU or more to a hog.

    Channels must be slow enough that the CPU has to wait, and fast enough that this
    wait ends.
    """
    argv: tuple[str, ...] = ("--engines", "dcbm", "--channel-percent", "175")
    argv += ("--total", "256M", "--rounds", "31")
    result = measure(tmp_path, capsys, "compaction", *argv)
    rows = {(row.busy, row.engine): row for row in result.rows}
    idle, busy = rows[False, "dcbm"], rows[True, "dcbm"]
    assert median_of(idle.compaction.wall_ratio_to_stock) <= 1.00
    assert share_of_system(idle) / share_of_system(rows[False, "stock"]) <= 0.80
    assert median_of(busy.compaction.wall_ratio_to_stock) <= 1.00
    assert median_of(busy.compaction.hog_until_stock_is_done) >= 1.06


HUGE_DEMOTION = ("--engines", "mtcopy", "--sizes", "2M", "--parts", "reclaim")


@pytest.mark.parametrize("pressure", ["reclaim", "high"])
def test_demotion_is_faster_with_two_cpus(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], pressure: str
) -> None:
    argv = (*HUGE_DEMOTION, "--pressure", pressure, "--max-unmapped-us", "0")
    result = measure(
        tmp_path, capsys, "demotion", *argv, "--rounds", "12", "--layouts", "4"
    )
    (mtcopy,) = [row for row in result.rows if row.engine == "mtcopy"]
    assert mtcopy.folio_bytes == PMD_BYTES
    assert median_of(mtcopy.ratio_to_stock_spread) >= 1.5


def test_nobody_waits_longer_for_memory(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """By PSI, where a task at memory.max demotes memory in its own page fault."""
    argv = (*HUGE_DEMOTION, "--pressure", "max", "--max-unmapped-us", "0")
    result = measure(
        tmp_path, capsys, "demotion", *argv, "--rounds", "12", "--layouts", "4"
    )
    stalls = {row.engine: row.demotion.stall_some_us for row in result.rows}
    stock, mtcopy = stalls["stock"], stalls["mtcopy"]
    assert stock
    assert mtcopy
    assert 0 < mtcopy.median <= stock.median


def test_lists_beat_one_page_at_a_time(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv = ("--engines", "mtcopy", "--sizes", "4K,2M", "--parts", "calls")
    result = measure(tmp_path, capsys, "demotion", *argv, "--rounds", "5")
    for engine in ("stock", "mtcopy"):
        rows = [row for row in result.rows if row.engine == engine]
        (of_512,) = [row for row in rows if row.demotion.folios_per_call == 512]
        (huge,) = [row for row in rows if row.folio_bytes == PMD_BYTES]
        many = median_of(of_512.demotion.ratio_to_single)
        assert many >= 2
        assert median_of(huge.demotion.ratio_to_single) > many
