# SPDX-License-Identifier: GPL-2.0-only
"""Each check of migration in runs is necessary."""

from __future__ import annotations

import pytest

from helpers import guests, selftests
from helpers.debug_kernel import SIDE_BY_SIDE
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

_ALL = "./runs"
_RIGHT = selftests.names(SIDE_BY_SIDE["runs"])
# Torture ends at the first loss. Other programs, or the kernel, may lose data before it.
_TORTURE = (
    "./torture --seconds 1800 --engines none --break run_flush && echo lost nothing"
)


@pytest.fixture(scope="module")
def broken_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """A machine to throw away: pages are lost, and freed pages stay mapped.

    A debug kernel would stop at this, and this kernel may complain, too.
    """
    return guests.boot_once(kernel_rules, {"runs": _ALL, "torture": _TORTURE})


@pytest.mark.parametrize("case", _RIGHT)
def test_pages_survive_what_others_do(torture_run: guests.Steps, case: str) -> None:
    torture_run.passes("runs", case)


def test_all_that_others_do_was_tried(torture_run: guests.Steps) -> None:
    torture_run.ran_all("runs", _RIGHT)


@pytest.mark.parametrize("case", selftests.names(_ALL))
def test_damage_shows_when_it_is_not_looked_at(
    broken_run: guests.Steps, case: str
) -> None:
    broken_run.passes("runs", case)


def test_torture_notices_damage(broken_run: guests.Steps) -> None:
    said = broken_run.text("torture")
    assert "# seed" in said
    # It says the name of this file if it could not break the rule.
    assert "break_rules" not in said
    assert "lost nothing" not in said


def test_every_case_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "runs", "-l"]).stdout
    assert selftests.listed(listed) == selftests.names(_ALL)
