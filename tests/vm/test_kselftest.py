# SPDX-License-Identifier: GPL-2.0-only
"""Memory of each kind moves with each engine, in a debug kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guests, ktap, selftests
from helpers.debug_kernel import STEPS
from pageferry import proc
from pageferry.kernel import bases
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel

pytestmark = pytest.mark.vm

_STEPS = ("kselftest", "whole", "fallback", "stalls")
_NAMES = {step: selftests.names(STEPS[step]) for step in _STEPS}


@pytest.mark.parametrize("name", _NAMES["kselftest"])
def test_kselftest(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("kselftest", name)


@pytest.mark.parametrize(
    "name", _NAMES["whole"], ids=lambda name: "-".join(name.split(".")[:0:-1])
)
def test_large_folios_stay_whole(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("whole", name)


def test_large_folios_of_every_size_stay_whole(kernel_vm: BuiltKernel) -> None:
    """In the kernel of users, which has no engine that is slow on purpose."""
    outcome = guests.boot(kernel_vm, "./whole", topology="two-node")
    report = ktap.parse(outcome.stdout)
    assert not report.problems()
    slow = "is_seen_to_be_unmapped_meanwhile"
    assert set(report.skips()) == set(selftests.names(f"./whole -t {slow}"))
    assert report.names() == set(selftests.names(f"./whole -T {slow}"))


@pytest.mark.skipif(bases.DEFAULT == "6.12", reason="Linux 6.12 tracks no reads")
def test_accesses_that_a_userfaultfd_tracks_fault(kernel_vm: BuiltKernel) -> None:
    outcome = guests.boot(kernel_vm, "./tracked", topology="two-node")
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert not report.skips()
    assert report.names() == set(selftests.names("./tracked"))


@pytest.mark.skipif(bases.DEFAULT == "6.12", reason="Linux 6.12 has no such option")
def test_large_folios_stay_whole_where_linux_counts_no_pages() -> None:
    """Linux does not know then which pages of a shared folio are mapped.

    So a folio that is marked as partially mapped keeps its mark.
    """
    kernel = build_kernel(BuildRequest(configs=("vm", "no-page-mapcount")))
    # The other one needs an engine that is slow on purpose.
    command = "./whole -T stays_so_from_then_on -T is_seen_to_be_unmapped_meanwhile"
    outcome = guests.boot(kernel, command, topology="two-node")
    report = ktap.parse(outcome.stdout)
    assert not report.problems(), outcome.stdout
    assert not report.skips()
    assert report.names() == set(selftests.names(command))


@pytest.mark.parametrize("name", _NAMES["fallback"])
def test_engines_that_misbehave(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("fallback", name)


@pytest.mark.parametrize("name", _NAMES["stalls"])
def test_what_waits_keeps_nobody_else(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("stalls", name)


def test_all_ways_to_misbehave_were_tried(debug_run: guests.Steps) -> None:
    debug_run.ran_all("fallback", _NAMES["fallback"])


def test_the_kselftest_is_whole_and_every_engine_was_there(
    debug_run: guests.Steps,
) -> None:
    debug_run.ran_all("kselftest", _NAMES["kselftest"])
    for engine in ("cpu", "mtcopy", "test"):
        assert f"engine {engine}" in debug_run.text("kselftest")


def test_the_debug_kernel_had_nothing_to_complain_about(
    debug_run: guests.Steps,
) -> None:
    assert "loaded" in debug_run.text("modules")
    debug_run.is_well()
    # A rule that was never on proves nothing.
    log = debug_run.outcome.serial_log.read_text(errors="replace")
    assert "page_poison=1" in log
    assert "KernelAddressSanitizer initialized" in log
    assert "RCU lockdep checking is enabled" in log


def test_nothing_is_said_to_pass_where_nothing_can_be_tested(
    kernel_debug: BuiltKernel,
) -> None:
    if Path("/sys/kernel/mm/migrate_offload").exists():
        pytest.skip("this machine runs a patched kernel")
    names = ("migrate_offload", "fallback", "hazards", "runs", "dcbm", "latency")
    more = ("stalls", "whole", "tracked", "hugetlb", "damon", "damon_scheme", "callers")
    for name in (*names, *more):
        report = ktap.parse(proc.capture([guests.programs(kernel_debug) / name]).stdout)
        assert not report.names()
        if not report.skipped:
            assert set(report.skips()) == set(selftests.names(f"./{name}"))
