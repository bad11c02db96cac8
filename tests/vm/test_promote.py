# SPDX-License-Identifier: GPL-2.0-only
"""Promotions gather into batches: the selftest, on a machine with two tiers."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm

_TESTS = (
    *("gathers", "counts_for_the_cgroup", "keeps_to_the_cpuset"),
    *("works_for_itself_under_cpu_max", "works_for_itself_without_all_cpus"),
    *("ends_with_its_engine", "is_drained"),
    "does_not_gather_in_vain",
    *("does_not_hold_up_others", "is_met_by_others", "survives_its_process"),
    "goes_on_without_memory_for_some",
)
_ALL = (
    *(f"promote.4k.{name}" for name in _TESTS),
    "promote.64k.gathers",
    "promote.64k.goes_on_without_memory_for_some",
)


@pytest.mark.parametrize("name", _ALL)
def test_promotion(tiered_run: guests.Steps, name: str) -> None:
    tiered_run.passes("promote", name)


def test_all_of_it_was_tried(tiered_run: guests.Steps) -> None:
    report = guests.passes(tiered_run.text("promote"), at_least=1)
    assert report.names() == set(_ALL)
    tiered_run.is_well()
