# SPDX-License-Identifier: GPL-2.0-only
"""An mmu_notifier hears of every page that moves."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

# Name in notify.c: whether its rule can be switched off.
_CASES = {
    "run": True,
    "run_pairs": True,
    "tlb_run": True,
    "tlb_ptes": True,
    "ptes": False,
    "pmd": False,
    "tlb_pmd": False,
    "shmem": False,
    "shared": False,
    "beside": False,
    "beside_ptes": False,
    "ended": False,
}

_RIGHT = [f"{name} with_all_rules" for name in _CASES]
_DAMAGED = [f"{name} without_its_rule" for name, rule in _CASES.items() if rule]


@pytest.fixture(scope="module")
def notify_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """The kernel of users, with rules that can be switched off."""
    return guests.boot_once(kernel_rules, {"notify": "./notify"})


@pytest.mark.parametrize("case", _RIGHT)
def test_devices_follow_in_a_kernel_full_of_checks(
    torture_run: guests.Steps, case: str
) -> None:
    torture_run.passes("notify", case)


@pytest.mark.parametrize("case", [*_RIGHT, *_DAMAGED])
def test_devices_follow_and_notice_when_they_are_not_told(
    notify_run: guests.Steps, case: str
) -> None:
    notify_run.passes("notify", case)


def test_the_machine_is_well_afterwards(notify_run: guests.Steps) -> None:
    notify_run.is_well()


def test_every_case_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "notify", "-l"]).stdout
    names = {line.split()[0]: line.split()[1] != "-" for line in listed.splitlines()}
    assert names == _CASES
