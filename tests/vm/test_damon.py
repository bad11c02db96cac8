# SPDX-License-Identifier: GPL-2.0-only
"""DAMON interleaves memory by weight: the selftests, on two kinds of machines.

An emulated debug kernel takes ten seconds until DAMON settles. So its shared boot runs
only the most different kinds of memory.
"""

from __future__ import annotations

import pytest

from helpers import debug_kernel, guests, selftests
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_STEPS = {
    # Threads write to the other kinds only.
    "damon": (
        "./damon -t is_where_it_belongs -V mlocked -V shmem_2m -V ext4_dirty"
        " -V ext4_clean -V swapcache -t moves_while_written"
    ),
    "damon scheme": "./damon_scheme",
    # The debug kernel runs this test.
    "damon limits": "./damon_limits -T goes_on_behind_a_large_folio",
    "damon paddr": "./damon_paddr",
}
_NAMES = {step: selftests.names(command) for step, command in _STEPS.items()}
_DEBUG = selftests.names(debug_kernel.STEPS["damon"])
# 512 MiB give the same result, but take minutes under emulation.
_BYTES = 64 << 20


@pytest.fixture(scope="module")
def quick_run(kernel_vm: BuiltKernel) -> guests.Steps:
    """All kinds of memory, on the kernel of users."""
    run = guests.boot_once(kernel_vm, _STEPS, topology="two-node")
    run.is_well()
    return run


@pytest.mark.parametrize("name", _NAMES["damon"])
def test_memory_is_where_it_belongs(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon", name)


@pytest.mark.parametrize("name", _NAMES["damon scheme"], ids=selftests.own_name)
def test_schemes_do_what_they_are_told(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon scheme", name)


@pytest.mark.parametrize("name", _NAMES["damon limits"], ids=selftests.own_name)
def test_schemes_get_on(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon limits", name)


def test_physical_regions_may_begin_inside_a_folio(quick_run: guests.Steps) -> None:
    quick_run.ran_all("damon paddr", _NAMES["damon paddr"])


def test_small_pages_move_where_no_large_folio_fits(debug_run: guests.Steps) -> None:
    step = "damon limits"
    debug_run.ran_all(step, selftests.names(debug_kernel.STEPS[step]))


def test_hot_and_cold_memory_change_places(debug_run: guests.Steps) -> None:
    """Without a free page, and only if a scheme offers cold memory."""
    step = "damon exchange"
    debug_run.ran_all(step, selftests.names(debug_kernel.STEPS[step]))


@pytest.mark.parametrize("name", _DEBUG, ids=lambda name: name.split(".")[1])
def test_the_debug_kernel_agrees(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("damon", name)


def test_much_memory_is_interleaved_with_an_engine(kernel_vm: BuiltKernel) -> None:
    script = (
        f"export BYTES={_BYTES} ENGINE=mtcopy; modprobe mtcopy\n"
        "./damon -T moves_while_written -v anon -v anon_2m"
    )
    outcome = guests.boot(kernel_vm, script, topology="tiered")
    report = guests.passes(outcome.stdout, at_least=2)
    assert report.names() == set(selftests.names(script))
