# SPDX-License-Identifier: GPL-2.0-only
"""Counters of cgroups about migration, and limits that bind helpers."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm

_TESTS = (
    "add_up",
    "uncharged",
    "cpu_max",
    "cpuset",
    "owed_is_paid",
    "cpu_time",
)


@pytest.mark.parametrize("name", _TESTS)
def test_cgroups_pay_for_what_is_theirs(torture_run: guests.Steps, name: str) -> None:
    torture_run.passes("cgroup", name)


def test_nothing_of_it_was_left_out(torture_run: guests.Steps) -> None:
    report = guests.passes(torture_run.text("cgroup"), at_least=len(_TESTS))
    assert report.names() == set(_TESTS)
