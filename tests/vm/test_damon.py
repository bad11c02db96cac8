# SPDX-License-Identifier: GPL-2.0-only
"""DAMON interleaves memory by weight: the selftests, on two kinds of machines.

An emulated debug kernel takes ten seconds until DAMON settles. So its shared boot runs
only the most different kinds of memory.
"""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_KINDS = (
    *("anon", "anon_64k", "anon_2m", "anon_2m_by_ptes", "mlocked", "shmem"),
    *("shmem_2m", "ext4_dirty", "ext4_clean", "swapcache"),
)
_WRITTEN = ("anon", "anon_64k", "anon_2m", "anon_2m_by_ptes", "shmem")
_TESTS = (
    *(f"memory.{kind}.is_where_it_belongs" for kind in _KINDS),
    *(f"memory.{kind}.moves_while_written" for kind in _WRITTEN),
)
_SCHEME_TESTS = (
    *("has_files_for_destinations", "goes_to_target_nid_without_destinations"),
    *("has_no_place_to_go_to", "adds_weights_up_without_wrapping", "migrates_cold"),
    *("keeps_to_the_access_pattern", "filters_anonymous_memory", "filters_cgroups"),
    *("filters_addresses", "filters_what_is_young", "keeps_to_the_quota"),
    *("keeps_to_the_watermarks", "leaves_what_is_in_use", "takes_a_whole_process"),
    *("survives_its_target", "takes_physical_addresses"),
)
_LIMITS_TESTS = (
    *("goes_on_behind_a_large_folio", "commits_without_a_target", "forgets_a_target"),
    *("begins_a_quota_with_nothing", "stops_in_the_middle", "lets_a_process_exit"),
)
# 512 MiB give the same result, but take minutes under emulation.
_BYTES = 64 << 20


@pytest.fixture(scope="module")
def quick_run(kernel_vm: BuiltKernel) -> guests.Steps:
    """All kinds of memory, on the kernel of users."""
    steps = {
        "damon": "./damon",
        "damon scheme": "./damon_scheme",
        "damon limits": "./damon_limits",
        "damon paddr": "./damon_paddr",
    }
    run = guests.boot_once(kernel_vm, steps, topology="two-node")
    run.is_well()
    return run


@pytest.mark.parametrize("name", _TESTS)
def test_memory_is_where_it_belongs(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon", name)


@pytest.mark.parametrize("name", _SCHEME_TESTS)
def test_schemes_do_what_they_are_told(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon scheme", f"scheme.{name}")


@pytest.mark.parametrize("name", _LIMITS_TESTS)
def test_schemes_get_on(quick_run: guests.Steps, name: str) -> None:
    quick_run.passes("damon limits", f"limits.{name}")


def test_physical_regions_may_begin_inside_a_folio(quick_run: guests.Steps) -> None:
    quick_run.passes("damon paddr", "paddr.goes_on_behind_a_folio_that_it_begins_in")


@pytest.mark.parametrize("kind", ["anon_64k", "anon_2m_by_ptes"])
def test_the_debug_kernel_agrees(debug_run: guests.Steps, kind: str) -> None:
    debug_run.passes("damon", f"memory.{kind}.is_where_it_belongs")


def test_much_memory_is_interleaved_with_an_engine(kernel_vm: BuiltKernel) -> None:
    script = (
        f"export BYTES={_BYTES} ENGINE=mtcopy; modprobe mtcopy\n"
        "./damon -T moves_while_written -v anon -v anon_2m"
    )
    outcome = guests.boot(kernel_vm, script, topology="tiered")
    report = guests.passes(outcome.stdout, at_least=2)
    assert report.names() == {
        f"memory.{kind}.is_where_it_belongs" for kind in ("anon", "anon_2m")
    }
