# SPDX-License-Identifier: GPL-2.0-only
"""Counters of cgroups about migration, and limits that bind helpers."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import SIDE_BY_SIDE

pytestmark = pytest.mark.vm

_TESTS = selftests.names(SIDE_BY_SIDE["cgroup"])


@pytest.mark.parametrize("name", _TESTS)
def test_cgroups_pay_for_what_is_theirs(torture_run: guests.Steps, name: str) -> None:
    torture_run.passes("cgroup", name)


def test_nothing_of_it_was_left_out(torture_run: guests.Steps) -> None:
    torture_run.ran_all("cgroup", _TESTS)
