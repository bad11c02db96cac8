# SPDX-License-Identifier: GPL-2.0-only
"""Counters of cgroups about migration, and limits that bind helpers."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm

_STEPS = {
    "modules": "modprobe mtcopy min_thread_bytes=4096"
    " && modprobe migrate_offload_test && echo loaded",
    "cgroup": "./cgroup",
}
_TESTS = selftests.names(_STEPS["cgroup"])


@pytest.fixture(scope="module")
def cgroup_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """One boot. `make torture` runs the same on a debug kernel."""
    return guests.boot_once(kernel_rules, _STEPS)


@pytest.mark.parametrize("name", _TESTS)
def test_cgroups_pay_for_what_is_theirs(cgroup_run: guests.Steps, name: str) -> None:
    cgroup_run.passes("cgroup", name)


def test_nothing_of_it_was_left_out(cgroup_run: guests.Steps) -> None:
    cgroup_run.ran_all("cgroup", _TESTS)
    cgroup_run.is_well()
