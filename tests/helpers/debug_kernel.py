# SPDX-License-Identifier: GPL-2.0-only
"""Boots of the debug kernel, each shared by as many tests as possible.

Each takes minutes. A background process does those that use one CPU of the host, one
after the other, while other tests run:

python3 -m helpers.debug_kernel FOLDER JOB...
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from helpers import ahead, guests, kernels, selftests
from pageferry import proc
from pageferry.kernel.build import BuiltKernel
from pageferry.vm import accel

_HERE = "/sys/kernel/mm/migrate_offload"
_KUNIT = "/sys/kernel/debug/kunit"
_DRIVER = Path(__file__).resolve().parents[1] / "fixtures" / "posted_driver"
# Engines that unload during migration; a hazard and a test of dcbm.
UNLOAD = "unload"

# Modules that linux/configs/test.config has for hardware.
DMA_DRIVERS = ("ioatdma", "ptdma")


def _all_but_unload(program: str, *options: str) -> str:
    cases = [case for case in selftests.cases(program) if case != UNLOAD]
    return f"./{program} {' '.join([*options, *cases])}"


STEPS = {
    # KUnit ran at boot; debugfs keeps its report.
    "kunit": f"ls {_KUNIT}",
    **{f"kunit {name}": f"cat {_KUNIT}/{name}/results" for name in guests.KUNIT_SUITES},
    "kunit again": (
        f"cd {_HERE} && echo cpu >engine && echo cpu >engine_of/demotion\n"
        f"echo 1 >{_KUNIT}/migrate_offload/run\n"
        f"cat {_KUNIT}/migrate_offload/results engine engine_of/demotion\n"
        "echo none >engine"
    ),
    "modules": "modprobe mtcopy min_thread_bytes=4096"
    " && modprobe migrate_offload_test && echo loaded",
    # This machine has none of these devices, so the drivers load and find nothing.
    "dma drivers": (
        f"for name in {' '.join(DMA_DRIVERS)}; do\n"
        "    modprobe $name && ls -d /sys/module/$name && modprobe -r $name || exit 1\n"
        "done\n"
        # It refuses CPUs without MOVDIR64B, which QEMU does not emulate.
        "modprobe idxd 2>&1 | grep -o 'No such device'"
    ),
    "kselftest": "./migrate_offload",
    # Hazards use an engine with a result per folio and without streams.
    "fallback": "./fallback -v posted -v stream -f streams",
    # In memory_costs_no_retry, allocations of a stream would fail, too.
    "stalls": (
        "./stalls -t disk_keeps_no_engine -t memory_keeps_nothing_unmapped -V stream"
        " -t memory_costs_no_retry"
    ),
    # This machine has no folios of 1 GiB.
    "hugetlb": "./hugetlb -v private -v private_stream",
    "hugetlb of files": (
        "./hugetlb -V private -V private_stream -V private_1g -T declined"
        " -T lies_but_is_verified -T lies -T is_left_to_the_cpu"
    ),
    # Each kind of mapping, with few and with many pages; other machines run all sizes.
    "whole": "./whole -v 16k -v 2m_by_ptes",
    "damon": "./damon -T moves_while_written -v anon_64k -v anon_2m_by_ptes",
    # Only this kernel can make allocations fail.
    "damon limits": "./damon_limits -t goes_on_behind_a_large_folio",
    "damon exchange": "./damon_exchange",
    "unload dcbm": f"./dcbm {UNLOAD}",
    "unload engines": f"./hazards {UNLOAD}",
    # Run these last: they poison pages, and damage data where a rule is off.
    "hazards": _all_but_unload("hazards"),
    "hazards of streams": _all_but_unload("hazards", "-s"),
}
# Common operations of programs, at any point between two instructions.
SIDE_BY_SIDE = {
    "modules": STEPS["modules"],
    "torture": "./torture --seconds 24",
    # All rules stay on, so the kernel is intact at the end.
    "runs": "./runs -k",
    "notify": "./notify -k",
    "exchange": "./exchange -k",
}

# Selftests that do not need whole folios: Linux splits a large folio that finds no
# memory.
UNDER_PRESSURE = {
    "memory": "./migrate_offload -f memory",
    "fallback": "./fallback -v stream",
    "runs": "./runs -k",
    "torture": "./torture --seconds 24",
}
WAYS_OF_PRESSURE = ("full", "slab", "pages")

DCBM = _all_but_unload("dcbm")
# Bounce buffers concern only the copying of data.
DCBM_BOUNCED = "./dcbm copies limits fail"
# Linux 7.3 counts the bounce buffers in use only with the second word. Linux 6.12
# always does, and ignores the word.
_BOUNCE = ("swiotlb=force", "swiotlb=track_hiwater")
# An IOMMU also concerns transfers that do not end, and devices that go away.
DCBM_IOMMU = f"{DCBM_BOUNCED} stall_held hidden_errors vanish share"
# Unit tests in modules; built-in ones have another run.
_MODULE_SUITES = ("kunit.enable=1", "kunit.filter_glob=migrate_d[cm]*")

# One descriptor in seven fails, and dcbm gives up no channel for this.
_FAILING_DCBM = """\
modprobe dmasim channels=4 && modprobe dcbm max_failures=1000000{more} || exit 1
dcbm=/sys/module/dcbm
echo 1 >$dcbm/offloading || exit 1
for chan in /sys/kernel/debug/dmasim/dmasim.0/chan*; do
    echo 7 >$chan/fail_every
done
ENGINE=dcbm {command}
echo COUNTS $(cat $dcbm/folios_migrated $dcbm/folios_failures)
echo none >/sys/kernel/mm/migrate_offload/engine
rmmod dcbm dmasim"""

# Every kind of memory, while programs write to it.
_ALL_KINDS = _FAILING_DCBM.format(command="./migrate_offload -f memory", more="")

_OFFLOADED = "-t is_offloaded"
TIERED = {
    # This engine never leaves a copy to the CPU.
    "cpu": f"ENGINE=cpu ./callers {_OFFLOADED}",
    "mtcopy": "modprobe mtcopy min_thread_bytes=4096 && ENGINE=mtcopy ./callers"
    "; rmmod mtcopy",
    # A busy host can delay any descriptor, and late ones count as failed. So the
    # timeout is long.
    "dcbm": _FAILING_DCBM.format(command="./callers", more=" timeout_ms=20000"),
    "all faults": f"./callers_faults.sh {_OFFLOADED}",
    # All of it with small folios, and what is different with large ones.
    "promote": "./promote -v 4k -t gathers -t goes_on_without_memory_for_some",
    "demotion": "./demotion",
}

_POSTED = """\
modprobe dmasim && insmod {module} || exit 1
parameters=/sys/module/posted_driver/parameters
echo 1 >$parameters/offloading || exit 1
cat /sys/kernel/mm/migrate_offload/engine
ENGINE=posted ./migrate_offload -v anon -v anon_64k -v anon_2m
echo COPIED $(cat $parameters/copied_folios)
echo 0 >$parameters/offloading && rmmod posted_driver dmasim && echo GONE"""


def _kernel() -> BuiltKernel:
    return kernels.build("kernel_debug")


def _everything_else() -> guests.Steps:
    """Run all CPUs of the guest in turn in one thread.

    With a thread for each, one CPU spins while the other has no host CPU: half of all
    time, in this kernel. Some steps must not use such threads at all. To switch engines
    during migration patches running code, and QEMU before 8.1 gets this wrong with
    threads ("Oops: int3").
    """
    words = ("kunit.enable=1", "kunit.filter_glob=migrate_*")
    one = accel.TCG_ONE_THREAD
    return guests.boot_once(_kernel(), STEPS, words=words, accel=one)


def _side_by_side() -> guests.Steps:
    """Run the guest's CPUs in parallel, if the host allows."""
    return guests.boot_once(_kernel(), SIDE_BY_SIDE)


def _posted_driver(kernel: BuiltKernel) -> Path:
    """Build an external module, which needs only headers."""
    # The guest mounts its own /tmp.
    module = guests.programs(kernel) / "posted_driver.ko"
    with tempfile.TemporaryDirectory(prefix="pageferry-posted-") as scratch:
        source = Path(scratch) / "driver"
        shutil.copytree(_DRIVER, source)
        made = proc.capture(
            ["make", "-C", str(kernel.build_dir), f"M={source}", "modules"]
        )
        assert made.returncode == 0, f"{made.stdout}\n{made.stderr}"
        # A compiler names the place first. kbuild may warn of a newer pahole, without.
        assert ": warning:" not in made.stderr, made.stderr
        shutil.copy(source / module.name, module)
    return module


def _plain() -> guests.Steps:
    kernel = _kernel()
    return guests.boot_once(
        kernel,
        {
            "dcbm": DCBM,
            "posted": _POSTED.format(module=_posted_driver(kernel)),
            "streams": "./dcbm_streams.sh",
        },
        words=_MODULE_SUITES,
    )


def _bounced() -> guests.Steps:
    """Make all devices use bounce buffers."""
    return guests.boot_once(
        _kernel(),
        {
            "dcbm": DCBM_BOUNCED,
            "kinds": _ALL_KINDS,
            # Run this before any user of the channels but dcbm.
            "used": "echo USED $(cat /sys/kernel/debug/swiotlb/io_tlb_used_hiwater)",
            "dmasim": "./dmasim.sh",
        },
        words=(*_MODULE_SUITES, *_BOUNCE),
    )


def _behind_iommu(strict: int, command: str) -> guests.Steps:
    """Put dmasim behind the IOMMU. The first step tells how the IOMMU unmaps."""
    return guests.boot_once(
        _kernel(),
        {
            "type": "modprobe dmasim"
            " && cat /sys/bus/pci/drivers/dmasim/0*/iommu_group/type; rmmod dmasim",
            "dcbm": command,
        },
        topology="iommu",
        words=(f"iommu.strict={strict}", "dmasim.pci=1"),
    )


def _iommu() -> guests.Steps:
    """Let the IOMMU flush its TLB at each unmap."""
    return _behind_iommu(1, DCBM_IOMMU)


def _lazy_iommu() -> guests.Steps:
    """Let the IOMMU flush its TLB later."""
    return _behind_iommu(0, DCBM_BOUNCED)


def _tiered() -> guests.Steps:
    """Run all callers that migrate memory, on a machine with two tiers."""
    return guests.boot_once(
        _kernel(),
        TIERED,
        topology="debug-tiered",
        accel=accel.TCG_ONE_THREAD,
    )


def _pressure() -> guests.Steps:
    """Migrate memory while memory is short."""
    commands = {
        f"{name} {way}": f"ENGINE=mtcopy ./pressure {way} {command}"
        for way in WAYS_OF_PRESSURE
        for name, command in UNDER_PRESSURE.items()
    }
    return guests.boot_once(_kernel(), {"modules": STEPS["modules"], **commands})


# Jobs by the name of their fixture.
JOBS: dict[str, Callable[[], guests.Steps]] = {
    "debug_run": _everything_else,
    "tiered_run": _tiered,
    "plain_run": _plain,
    "bounced_run": _bounced,
    "iommu_run": _iommu,
    "lazy_iommu_run": _lazy_iommu,
    "pressure_run": _pressure,
    "torture_run": _side_by_side,
}
# The first two use one CPU, and leave one to other tests. The last three take a few
# minutes. The others have a thread for each of two CPUs. If such a guest has low
# priority, one CPU mostly spins for the other. Then devices seem to stall, and minutes
# become half an hour.
AHEAD = ("debug_run", "tiered_run", "bounced_run", "iommu_run", "lazy_iommu_run")


def steps(queue: ahead.Queue | None, name: str) -> guests.Steps:
    """Return the guest's output, now or when the job is done."""
    if queue is not None and name in queue.jobs:
        found = queue.result(name, JOBS)
    else:
        found = JOBS[name]()
    assert isinstance(found, guests.Steps)
    return found


if __name__ == "__main__":
    for job in sys.argv[2:]:
        ahead.do(Path(sys.argv[1]), job, JOBS[job])
