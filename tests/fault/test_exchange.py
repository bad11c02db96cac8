# SPDX-License-Identifier: GPL-2.0-only
"""Two folios change places, or both stay."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import SIDE_BY_SIDE
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

_ALL = "./exchange"
_RIGHT = selftests.names(SIDE_BY_SIDE["exchange"])


@pytest.fixture(scope="module")
def exchange_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """The kernel of users, with rules that can be switched off."""
    return guests.boot_once(kernel_rules, {"exchange": _ALL})


@pytest.mark.parametrize("case", _RIGHT)
def test_owners_keep_their_content_in_a_kernel_full_of_checks(
    torture_run: guests.Steps, case: str
) -> None:
    torture_run.passes("exchange", case)


@pytest.mark.parametrize("case", selftests.names(_ALL))
def test_owners_keep_their_content_and_damage_shows_without_a_rule(
    exchange_run: guests.Steps, case: str
) -> None:
    exchange_run.passes("exchange", case)


def test_the_machine_is_well_afterwards(exchange_run: guests.Steps) -> None:
    exchange_run.is_well()


def test_every_case_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "exchange", "-l"]).stdout
    assert selftests.listed(listed) == selftests.names(_ALL)
