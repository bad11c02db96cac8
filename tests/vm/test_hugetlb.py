# SPDX-License-Identifier: GPL-2.0-only
"""hugetlb folios are copied by engines, one by one, and none is lost."""

from __future__ import annotations

import pytest

from helpers import guests

pytestmark = pytest.mark.vm

_CASES = (
    *("moves", "leaves_the_pools_alone", "declined", "one_fails"),
    *("lies_but_is_verified", "lies", "is_left_to_the_cpu", "moves_while_written"),
)
_FILE_CASES = ("moves", "leaves_the_pools_alone", "one_fails", "moves_while_written")
# An engine of each kind; 1 GiB is left out, as there is no memory for it.
_STEPS = {
    "hugetlb": {f"hugetlb.private.{case}" for case in _CASES},
    "hugetlb of files": {
        f"hugetlb.{kind}.{case}" for kind in ("shared", "file") for case in _FILE_CASES
    },
}


@pytest.mark.parametrize(
    ("step", "name"), [(step, name) for step in _STEPS for name in sorted(_STEPS[step])]
)
def test_engines_copy_hugetlb_folios(
    debug_run: guests.Steps, step: str, name: str
) -> None:
    debug_run.passes(step, name)


@pytest.mark.parametrize("step", list(_STEPS))
def test_all_of_hugetlb_was_tried(debug_run: guests.Steps, step: str) -> None:
    report = guests.passes(debug_run.text(step), at_least=len(_STEPS[step]))
    assert report.names() == _STEPS[step]
