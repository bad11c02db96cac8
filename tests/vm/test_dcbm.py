# SPDX-License-Identifier: GPL-2.0-only
"""Copies by DMA: dcbm on the simulated engine, and a posted driver."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import debug_kernel, guests, selftests
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode

pytestmark = pytest.mark.vm


def _numbers(text: str, word: str) -> list[int]:
    (line,) = [s for s in text.splitlines() if s.startswith(f"{word} ")]
    return [int(number) for number in line.split()[1:]]


@pytest.mark.parametrize("name", selftests.names(debug_kernel.DCBM))
def test_data_arrives_whatever_the_channels_do(
    plain_run: guests.Steps, name: str
) -> None:
    plain_run.passes("dcbm", name)


@pytest.mark.parametrize("name", selftests.names(debug_kernel.DCBM_BOUNCED))
def test_bounce_buffers_are_copied_back(bounced_run: guests.Steps, name: str) -> None:
    bounced_run.passes("dcbm", name)
    assert _numbers(bounced_run.text("used"), "USED") > [0]


@pytest.mark.parametrize("name", selftests.names(debug_kernel.DCBM_IOMMU))
def test_data_arrives_through_an_iommu(iommu_run: guests.Steps, name: str) -> None:
    iommu_run.passes("dcbm", name)
    assert iommu_run.text("type").split() == ["DMA"]


@pytest.mark.parametrize("name", selftests.names(debug_kernel.DCBM_BOUNCED))
def test_data_arrives_through_a_lazy_iommu(
    lazy_iommu_run: guests.Steps, name: str
) -> None:
    lazy_iommu_run.passes("dcbm", name)
    assert lazy_iommu_run.text("type").split() == ["DMA-FQ"]


def test_every_kind_of_memory_moves_though_channels_fail(
    bounced_run: guests.Steps,
) -> None:
    report = guests.passes(bounced_run.text("kinds"), at_least=20)
    assert "memory.anon_2m.moves_in_use" in report.names()
    migrated, failed = _numbers(bounced_run.text("kinds"), "COUNTS")
    assert migrated > failed > 0


def test_a_driver_from_outside_copies(plain_run: guests.Steps) -> None:
    text = plain_run.text("posted")
    assert "\nposted\n" in f"\n{text}"
    report = guests.passes(text, at_least=6)
    assert "memory.anon_2m.moves_in_use" in report.names()
    assert _numbers(text, "COPIED") > [0]
    assert "GONE" in text


def test_the_kernel_had_nothing_to_complain_about(
    plain_run: guests.Steps, bounced_run: guests.Steps, debug_run: guests.Steps
) -> None:
    for steps in (plain_run, bounced_run, debug_run):
        steps.is_well()
        log = steps.outcome.serial_log.read_text(errors="replace")
        assert "DMA-API: debugging enabled" in log
        assert "page_poison=1" in log
        assert "KernelAddressSanitizer initialized" in log


def test_batches_are_copied_side_by_side(plain_run: guests.Steps) -> None:
    """Also with a failing batch, and with two tasks that want all channels."""
    guests.passes(plain_run.text("streams"), at_least=12)


def test_dcbm_can_be_unloaded_at_any_moment(debug_run: guests.Steps) -> None:
    debug_run.ran_all("unload dcbm", [debug_kernel.UNLOAD])


def test_bandwidth_grows_with_channels(kernel_vm: BuiltKernel, tmp_path: Path) -> None:
    """Also with one 2M folio in each window."""
    output = tmp_path / "result.json"
    code = main(
        [
            # Use no limit on unmapped time: such channels could not keep one.
            *("bench", "latency", "--vm", "--engines", "dcbm", "--limits-us", "0"),
            # The channels are so slow that the rest of a folio's time hardly counts.
            *("--channels", "1,2,4,8", "--channel-mbps", "2", "--sizes", "2M"),
            *("--total", "16M", "--rounds", "5", "--output", str(output)),
            *("--windows", "2"),
        ]
    )
    assert code == 0
    rows = [row for row in decode(output.read_bytes()).rows if row.engine == "dcbm"]
    # Other work of the host makes rounds slower, and never faster.
    rates = {row.channels: row.bytes_per_s.max for row in rows if row.bytes_per_s}
    assert all(row.engine_bytes == row.moved_bytes * row.rounds for row in rows)
    for channels in (2, 4, 8):
        assert rates[channels] >= 0.9 * channels * rates[1]
