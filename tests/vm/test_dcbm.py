# SPDX-License-Identifier: GPL-2.0-only
"""Copying with DMA engines: dcbm on the simulated one, and a driver of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers import guests
from pageferry import proc
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode
from pageferry.vm import accel

pytestmark = pytest.mark.vm

_TESTS = (
    *("copies", "limits", "fail", "refuse", "lose_irq", "late", "stall_stopped"),
    *("stall_held", "administrator", "unbind", "vanish"),
)
# Switches engines while another CPU migrates: see tests/fault/test_hazards.py.
_ONE_THREAD = "unload"
_DRIVER = Path(__file__).resolve().parents[1] / "fixtures" / "posted_driver"


def test_data_arrives_whatever_the_channels_do(kernel_debug: BuiltKernel) -> None:
    outcome = guests.boot(kernel_debug, f"./dcbm {' '.join(_TESTS)}")
    report = guests.passes(outcome.stdout, at_least=len(_TESTS))
    assert report.names() == set(_TESTS)


def test_dcbm_can_be_unloaded_at_any_moment(kernel_debug: BuiltKernel) -> None:
    outcome = guests.boot(
        kernel_debug, f"./dcbm {_ONE_THREAD}", accel=accel.TCG_ONE_THREAD
    )
    assert guests.passes(outcome.stdout, at_least=1).names() == {_ONE_THREAD}


def test_every_kind_of_memory_moves_with_dcbm(kernel_debug: BuiltKernel) -> None:
    """While programs write to it, and one descriptor in seven fails."""
    faults = "/sys/kernel/debug/dmasim/dmasim.0"
    outcome = guests.boot(
        kernel_debug,
        "modprobe dmasim channels=4 && modprobe dcbm max_failures=1000000\n"
        "cd /sys/module/dcbm && echo 1 > threshold && echo 1 > offloading\n"
        f"for chan in {faults}/chan*; do echo 7 > $chan/fail_every; done\n"
        "cd - >/dev/null; ENGINE=dcbm ./migrate_offload -f memory\n"
        "cd /sys/module/dcbm; echo COUNTS $(cat folios_migrated folios_failures)",
    )
    report = guests.passes(outcome.stdout, at_least=20)
    assert "memory.anon_2m.moves_in_use" in report.names()
    (counts,) = [s for s in outcome.stdout.splitlines() if s.startswith("COUNTS ")]
    migrated, failed = (int(word) for word in counts.split()[1:])
    assert migrated > failed > 0


def test_bandwidth_grows_with_channels(kernel_vm: BuiltKernel, tmp_path: Path) -> None:
    """Also with one 2M folio at a time, which is what a batch holds."""
    output = tmp_path / "result.json"
    code = main(
        [
            *("bench", "move-pages", "--vm", "--engines", "dcbm", "--no-limit"),
            *("--channels", "1,2,4,8", "--channel-mbps", "10", "--sizes", "2M"),
            *("--total", "16M", "--rounds", "3", "--output", str(output)),
        ]
    )
    assert code == 0
    rows = [row for row in decode(output.read_bytes()).rows if row.engine == "dcbm"]
    rates = {row.channels: row.bytes_per_s.median for row in rows if row.bytes_per_s}
    assert all(row.engine_bytes == row.moved_bytes * row.rounds for row in rows)
    for channels in (2, 4, 8):
        assert rates[channels] >= 0.9 * channels * rates[1]


def test_bounce_buffers_are_copied_back(kernel_debug: BuiltKernel) -> None:
    """With swiotlb=force no device writes to a folio itself."""
    outcome = guests.boot(
        kernel_debug,
        "./dcbm copies limits fail\n"
        "cat /sys/kernel/debug/swiotlb/io_tlb_used_hiwater | sed 's/^/USED /'",
        words=("swiotlb=force",),
    )
    report = guests.passes(outcome.stdout, at_least=3)
    assert report.names() == {"copies", "limits", "fail"}
    (used,) = [s for s in outcome.stdout.splitlines() if s.startswith("USED ")]
    assert int(used.split()[1]) > 0


def test_a_driver_from_outside_copies(
    kernel_debug: BuiltKernel, tmp_path: Path
) -> None:
    """It needs nothing but the headers, and moves every page."""
    source = tmp_path / "posted_driver"
    shutil.copytree(_DRIVER, source)
    made = proc.capture(
        ["make", "-C", str(kernel_debug.build_dir), f"M={source}", "modules"]
    )
    assert made.returncode == 0, f"{made.stdout}\n{made.stderr}"
    assert "warning" not in made.stderr

    module = "/sys/module/posted_driver/parameters"
    outcome = guests.boot(
        kernel_debug,
        f"modprobe dmasim && insmod {source}/posted_driver.ko || exit 1\n"
        f"echo 1 > {module}/offloading || exit 1\n"
        "grep -x posted /sys/kernel/mm/migrate_offload/engine || exit 1\n"
        "ENGINE=posted ./migrate_offload -f memory\n"
        f"echo COPIED $(cat {module}/copied_folios)\n"
        f"echo 0 > {module}/offloading && rmmod posted_driver && echo GONE",
    )
    assert "GONE" in outcome.stdout, outcome.stdout
    report = guests.passes(outcome.stdout, at_least=10)
    assert "memory.anon_2m.moves_in_use" in report.names()
    (copied,) = [s for s in outcome.stdout.splitlines() if s.startswith("COPIED ")]
    assert int(copied.split()[1]) > 0
