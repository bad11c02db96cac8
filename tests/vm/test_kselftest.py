# SPDX-License-Identifier: GPL-2.0-only
"""Memory of each kind moves with each engine, in a debug kernel."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import guests, ktap
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_KINDS = (
    *("anon", "anon_16k", "anon_32k", "anon_64k", "anon_128k", "anon_256k"),
    *("anon_512k", "anon_1m", "anon_2m", "mlocked", "shmem", "shmem_2m", "tmpfs"),
    *("ext4_dirty", "ext4_clean", "ksm", "swapcache", "hugetlb", "hugetlb_shared"),
)
_POLICY = (
    *("refuses_nonsense", "off_is_off", "engine_of"),
    *("verify_of_a_good_engine", "mbind"),
)
_FALLBACK = (
    *("copies", "declines", "fails_one", "is_slow", "lies_but_is_verified", "lies"),
    "is_alone",
)
_STREAMS = (
    *("are_done_in_any_order", "have_windows_side_by_side", "decline_a_batch"),
    *("fail_in_one_window", "hold_in_one_window", "pass_over_a_window"),
    "give_back_what_is_done",
    *("report_while_given_more", "are_not_waited_for_with_nothing_in_flight"),
)
_STALLS = (
    *(
        f"stalls.{way}.{name}"
        for way in ("per_folio", "posted", "stream")
        for name in ("disk_keeps_no_engine", "memory_keeps_nothing_unmapped")
    ),
    *(f"stalls.{way}.memory_costs_no_retry" for way in ("per_folio", "posted")),
)
_WHOLE = (
    *("stays_so", "stays_so_with_an_engine", "is_split_without"),
    *("stays_so_from_then_on", "stays_so_when_shared", "stays_so_in_two_tables"),
    *("stays_so_in_many_vmas", "stays_so_with_hints", "is_split_when_it_is_not"),
    *("is_seen_to_be_unmapped_meanwhile", "keeps_the_bits_of_each_page"),
)
_ALL_SIZES = ("16k", "32k", "64k", "128k", "256k", "512k", "1m", "2m_by_ptes")
_TESTS = (
    *(f"memory.{kind}.{how}" for kind in _KINDS for how in ("moves", "moves_in_use")),
    *(f"policy.{name}" for name in _POLICY),
)
_FALLBACK_TESTS = (
    *(f"fallback.{way}.{name}" for way in ("posted", "stream") for name in _FALLBACK),
    *(f"streams.{name}" for name in _STREAMS),
)


@pytest.mark.parametrize("name", _TESTS)
def test_kselftest(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("kselftest", name)


@pytest.mark.parametrize("size", ["16k", "2m_by_ptes"])
@pytest.mark.parametrize("name", _WHOLE)
def test_large_folios_stay_whole(debug_run: guests.Steps, name: str, size: str) -> None:
    debug_run.passes("whole", f"whole.{size}.{name}")


def test_large_folios_of_every_size_stay_whole(kernel_vm: BuiltKernel) -> None:
    """In the kernel of users, which has no engine that is slow on purpose."""
    outcome = guests.boot(kernel_vm, "./whole", topology="two-node")
    report = ktap.parse(outcome.stdout)
    assert not report.problems()
    slow = "is_seen_to_be_unmapped_meanwhile"
    assert set(report.skips()) == {f"whole.{size}.{slow}" for size in _ALL_SIZES}
    assert report.names() == {
        f"whole.{size}.{name}" for size in _ALL_SIZES for name in _WHOLE if name != slow
    }


@pytest.mark.parametrize("name", _FALLBACK_TESTS)
def test_engines_that_misbehave(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("fallback", name)


@pytest.mark.parametrize("name", _STALLS)
def test_what_waits_keeps_nobody_else(debug_run: guests.Steps, name: str) -> None:
    debug_run.passes("stalls", name)


def test_all_ways_to_misbehave_were_tried(debug_run: guests.Steps) -> None:
    text = debug_run.text("fallback")
    report = guests.passes(text, at_least=len(_FALLBACK_TESTS))
    assert report.names() == set(_FALLBACK_TESTS)


def test_the_kselftest_is_whole_and_every_engine_was_there(
    debug_run: guests.Steps,
) -> None:
    text = debug_run.text("kselftest")
    report = guests.passes(text, at_least=len(_TESTS))
    assert report.names() == set(_TESTS)
    for engine in ("cpu", "mtcopy", "test"):
        assert f"engine {engine}" in text


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
    more = ("stalls", "whole", "hugetlb", "damon", "damon_scheme", "callers")
    for name in (*names, *more):
        report = ktap.parse(proc.capture([guests.programs(kernel_debug) / name]).stdout)
        assert not report.names()
        assert report.skipped or report.skips()
