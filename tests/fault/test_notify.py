# SPDX-License-Identifier: GPL-2.0-only
"""An mmu_notifier hears of every page that moves."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import SIDE_BY_SIDE
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

_ALL = "./notify"


@pytest.fixture(scope="module")
def notify_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """The kernel of users, with rules that can be switched off."""
    return guests.boot_once(kernel_rules, {"notify": _ALL})


@pytest.mark.parametrize("case", selftests.names(SIDE_BY_SIDE["notify"]))
def test_devices_follow_in_a_kernel_full_of_checks(
    torture_run: guests.Steps, case: str
) -> None:
    torture_run.passes("notify", case)


@pytest.mark.parametrize("case", selftests.names(_ALL))
def test_devices_follow_and_notice_when_they_are_not_told(
    notify_run: guests.Steps, case: str
) -> None:
    notify_run.passes("notify", case)


def test_the_machine_is_well_afterwards(notify_run: guests.Steps) -> None:
    notify_run.is_well()


def test_every_case_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "notify", "-l"]).stdout
    assert selftests.listed(listed) == selftests.names(_ALL)
