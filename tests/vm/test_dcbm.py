# SPDX-License-Identifier: GPL-2.0-only
"""Copying with DMA engines: dcbm on the simulated one, and a driver of others."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from helpers import guests
from pageferry import paths, proc
from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode
from pageferry.vm import accel

pytestmark = pytest.mark.vm

_TESTS = (
    *("copies", "limits", "fail", "refuse", "lose_irq", "late", "stall_stopped"),
    *("stall_held", "share", "fair", "administrator", "unbind", "vanish"),
)
# Switches engines while another CPU migrates: see tests/fault/test_hazards.py.
_ONE_THREAD = "unload"
_BOUNCED = ("copies", "limits", "fail")
_STREAMS = (
    paths.repo_root()
    / "linux/tree/tools/testing/selftests/migrate_offload/dcbm_streams.sh"
)
_DRIVER = Path(__file__).resolve().parents[1] / "fixtures" / "posted_driver"

# Every kind of memory, while programs write to it and one descriptor in seven
# fails.
_ALL_KINDS = """\
modprobe dmasim channels=4 && modprobe dcbm max_failures=1000000 || exit 1
dcbm=/sys/module/dcbm
echo 1 >$dcbm/threshold && echo 1 >$dcbm/offloading || exit 1
for chan in /sys/kernel/debug/dmasim/dmasim.0/chan*; do
    echo 7 >$chan/fail_every
done
ENGINE=dcbm ./migrate_offload -f memory
echo COUNTS $(cat $dcbm/folios_migrated $dcbm/folios_failures)
echo none >/sys/kernel/mm/migrate_offload/engine
rmmod dcbm dmasim"""

_POSTED = """\
modprobe dmasim && insmod {module} || exit 1
parameters=/sys/module/posted_driver/parameters
echo 1 >$parameters/offloading || exit 1
cat /sys/kernel/mm/migrate_offload/engine
ENGINE=posted ./migrate_offload -v anon -v anon_64k -v anon_2m
echo COPIED $(cat $parameters/copied_folios)
echo 0 >$parameters/offloading && rmmod posted_driver dmasim && echo GONE"""


def _numbers(text: str, word: str) -> list[int]:
    (line,) = [s for s in text.splitlines() if s.startswith(f"{word} ")]
    return [int(number) for number in line.split()[1:]]


@pytest.fixture(scope="module")
def posted_driver(
    kernel_debug: BuiltKernel, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A module built outside of the kernel, which needs nothing but headers."""
    source = tmp_path_factory.mktemp("posted") / "driver"
    shutil.copytree(_DRIVER, source)
    made = proc.capture(
        ["make", "-C", str(kernel_debug.build_dir), f"M={source}", "modules"]
    )
    assert made.returncode == 0, f"{made.stdout}\n{made.stderr}"
    assert "warning" not in made.stderr
    # The guest has a /tmp of its own.
    module = guests.programs(kernel_debug) / "posted_driver.ko"
    shutil.copy(source / module.name, module)
    return module


@pytest.fixture(scope="module")
def plain(kernel_debug: BuiltKernel, posted_driver: Path) -> guests.Steps:
    return guests.boot_once(
        kernel_debug,
        {
            "dcbm": f"./dcbm {' '.join(_TESTS)}",
            "posted": _POSTED.format(module=posted_driver),
        },
    )


@pytest.fixture(scope="module")
def bounced(kernel_debug: BuiltKernel) -> guests.Steps:
    """No device reads or writes a folio itself."""
    return guests.boot_once(
        kernel_debug,
        {
            "dcbm": f"./dcbm {' '.join(_BOUNCED)}",
            "kinds": _ALL_KINDS,
            "used": "echo USED $(cat /sys/kernel/debug/swiotlb/io_tlb_used_hiwater)",
        },
        words=("swiotlb=force",),
    )


@pytest.mark.parametrize("name", _TESTS)
def test_data_arrives_whatever_the_channels_do(plain: guests.Steps, name: str) -> None:
    plain.passes("dcbm", name)


@pytest.mark.parametrize("name", _BOUNCED)
def test_bounce_buffers_are_copied_back(bounced: guests.Steps, name: str) -> None:
    bounced.passes("dcbm", name)
    assert _numbers(bounced.text("used"), "USED") > [0]


def test_every_kind_of_memory_moves_though_channels_fail(bounced: guests.Steps) -> None:
    report = guests.passes(bounced.text("kinds"), at_least=20)
    assert "memory.anon_2m.moves_in_use" in report.names()
    migrated, failed = _numbers(bounced.text("kinds"), "COUNTS")
    assert migrated > failed > 0


def test_a_driver_from_outside_copies(plain: guests.Steps) -> None:
    text = plain.text("posted")
    assert "\nposted\n" in f"\n{text}"
    report = guests.passes(text, at_least=6)
    assert "memory.anon_2m.moves_in_use" in report.names()
    assert _numbers(text, "COPIED") > [0]
    assert "GONE" in text


def test_the_kernel_had_nothing_to_complain_about(
    plain: guests.Steps, bounced: guests.Steps
) -> None:
    for steps in (plain, bounced):
        steps.is_well()
        log = steps.outcome.serial_log.read_text(errors="replace")
        assert "DMA-API: debugging enabled" in log


def test_batches_are_copied_side_by_side(kernel_debug: BuiltKernel) -> None:
    """Also when one of them fails; and who waits for channels gets some."""
    words = ("kunit.enable=1", "kunit.filter_glob=migrate_dcbm_streams*")
    outcome = guests.boot(kernel_debug, str(_STREAMS), words=words)
    guests.passes(outcome.stdout, at_least=12)


def test_dcbm_can_be_unloaded_at_any_moment(kernel_debug: BuiltKernel) -> None:
    outcome = guests.boot(
        kernel_debug, f"./dcbm {_ONE_THREAD}", accel=accel.TCG_ONE_THREAD
    )
    assert guests.passes(outcome.stdout, at_least=1).names() == {_ONE_THREAD}


def test_bandwidth_grows_with_channels(kernel_vm: BuiltKernel, tmp_path: Path) -> None:
    """Also with one 2M folio in each window."""
    output = tmp_path / "result.json"
    code = main(
        [
            # Without a limit in time, which such channels could not keep.
            *("bench", "latency", "--vm", "--engines", "dcbm", "--limits-us", "0"),
            # So slow that what else it takes for each folio hardly counts.
            *("--channels", "1,2,4,8", "--channel-mbps", "5", "--sizes", "2M"),
            *("--total", "8M", "--rounds", "3", "--output", str(output)),
            *("--windows", "2"),
        ]
    )
    assert code == 0
    rows = [row for row in decode(output.read_bytes()).rows if row.engine == "dcbm"]
    rates = {row.channels: row.bytes_per_s.median for row in rows if row.bytes_per_s}
    assert all(row.engine_bytes == row.moved_bytes * row.rounds for row in rows)
    for channels in (2, 4, 8):
        assert rates[channels] >= 0.9 * channels * rates[1]
