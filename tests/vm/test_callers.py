# SPDX-License-Identifier: GPL-2.0-only
"""All callers that migrate memory are offloaded if the mask of reasons says so.

They run on a debug kernel, with engines that work, and with one that fails one
descriptor in seven.
"""

from __future__ import annotations

import re

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import TIERED

pytestmark = pytest.mark.vm

_ENGINES = ("mtcopy", "dcbm")
# None may be skipped on this machine. DAMON has its own tests.
_TESTS = {engine: selftests.names(TIERED[engine]) for engine in _ENGINES}
_OFFLOADED = selftests.names(TIERED["cpu"])


@pytest.mark.parametrize(
    ("name", "engine"),
    [(name, engine) for engine in _ENGINES for name in _TESTS[engine]],
)
def test_the_mask_says_who_is_offloaded(
    tiered_run: guests.Steps, name: str, engine: str
) -> None:
    tiered_run.passes(engine, name)


@pytest.mark.parametrize("name", _OFFLOADED)
def test_all_that_moves_is_offloaded(tiered_run: guests.Steps, name: str) -> None:
    """Uses an engine that leaves no copy to the CPU."""
    tiered_run.passes("cpu", name)


@pytest.mark.parametrize("engine", _ENGINES)
def test_all_callers_were_tried(tiered_run: guests.Steps, engine: str) -> None:
    tiered_run.ran_all(engine, _TESTS[engine])


def test_some_descriptors_failed_and_most_did_not(tiered_run: guests.Steps) -> None:
    lines = tiered_run.text("dcbm").splitlines()
    (counts,) = [line for line in lines if line.startswith("COUNTS ")]
    migrated, failed = (int(number) for number in counts.split()[1:])
    assert migrated > failed > 0


@pytest.mark.parametrize("name", _OFFLOADED)
def test_no_fault_of_a_channel_loses_anything(
    tiered_run: guests.Steps, name: str
) -> None:
    tiered_run.passes("all faults", name)


_HITS = (
    *("by the engine", "not by it", "errors", "late", "interrupts lost"),
    *("terminated", "refused"),
)


@pytest.mark.parametrize("what", _HITS)
def test_faults_of_all_kinds_hit(tiered_run: guests.Steps, what: str) -> None:
    said = tiered_run.text("all faults")
    (count,) = re.findall(rf"^# (?:.*, )?{what} (\d+)", said, re.MULTILINE)
    assert int(count) > 0
    (times,) = re.findall(r"^# the second device went (\d+) times", said, re.MULTILINE)
    assert int(times) > 0


def test_the_kernel_had_nothing_to_complain_about(tiered_run: guests.Steps) -> None:
    tiered_run.is_well()
    log = tiered_run.outcome.serial_log.read_text(errors="replace")
    assert "KernelAddressSanitizer initialized" in log
    assert "RCU lockdep checking is enabled" in log
    assert "DMA-API: debugging enabled" in log


def test_demotion_keeps_the_balance_of_lru_lists(tiered_run: guests.Steps) -> None:
    tiered_run.ran_all("demotion", selftests.names(TIERED["demotion"]))
