# SPDX-License-Identifier: GPL-2.0-only
"""Each check of migration in runs is necessary."""

from __future__ import annotations

import pytest

from helpers import guests
from pageferry import proc
from pageferry.kernel.build import BuiltKernel

pytestmark = [pytest.mark.vm, pytest.mark.fault]

# Name in runs.c: whether its rule can be switched off, and whether it has hints.
_CASES = {
    "foreign": (True, False),
    "shared": (False, True),
    "not_exclusive": (True, True),
    "pinned": (True, True),
    "poisoned": (True, True),
    "stale_tlb": (True, False),
    "stale_hint": (True, False),
    "cut": (False, False),
    "rewritten": (True, False),
    "forked": (True, False),
    "left_over": (True, False),
    "mlocked": (True, False),
    "bits": (False, False),
    "moved": (False, False),
    "unmapped": (False, False),
    "ended": (False, False),
    "hints": (False, False),
    "executed": (False, False),
    "arguments": (False, False),
    "uffd_moved": (False, False),
    "merged": (False, False),
    "collapsed": (False, False),
    "in_turn": (False, False),
    "large_pinned": (True, False),
    "large_poisoned": (True, False),
    "large_stale": (True, False),
}

_RIGHT = [
    f"{name} {rules}"
    for name, (_, hints) in _CASES.items()
    for rules in ("with_all_rules", *(["without_hints"] if hints else []))
]
_DAMAGED = [f"{name} without_its_rule" for name, (rule, _) in _CASES.items() if rule]


@pytest.fixture(scope="module")
def broken_run(kernel_rules: BuiltKernel) -> guests.Steps:
    """A machine to throw away: pages are lost, and freed pages stay mapped.

    A debug kernel would stop at this, and this kernel may complain, too.
    """
    return guests.boot_once(kernel_rules, {"runs": "./runs"})


@pytest.mark.parametrize("case", _RIGHT)
def test_pages_survive_what_others_do(torture_run: guests.Steps, case: str) -> None:
    torture_run.passes("runs", case)


def test_all_that_others_do_was_tried(torture_run: guests.Steps) -> None:
    report = guests.passes(torture_run.text("runs"), at_least=len(_RIGHT))
    assert report.names() == set(_RIGHT)


@pytest.mark.parametrize("case", [*_RIGHT, *_DAMAGED])
def test_damage_shows_when_it_is_not_looked_at(
    broken_run: guests.Steps, case: str
) -> None:
    broken_run.passes("runs", case)


def test_every_case_is_known_here(kernel_debug: BuiltKernel) -> None:
    listed = proc.capture([guests.programs(kernel_debug) / "runs", "-l"]).stdout
    cases = {}
    for line in listed.splitlines():
        name, rule, *hints = line.split()
        cases[name] = (rule != "-", bool(hints))
    assert cases == _CASES
