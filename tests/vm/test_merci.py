# SPDX-License-Identifier: GPL-2.0-only
"""The published example of the balancer, end to end, with memory that really moves."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any

import pytest

from helpers.interleave import boot
from helpers.merci_guest import SHARE, SLACK
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
MIB = 64


@pytest.fixture(scope="module")
def seen(kernel_vm: BuiltKernel) -> dict[str, Any]:
    """Results of one boot."""
    found = boot(kernel_vm, "tiered", MIB, ("merci",), guest="helpers.merci_guest")
    merci = found["merci"]
    assert isinstance(merci, dict)
    return merci


def test_one_change_of_weights_as_published(seen: dict[str, Any]) -> None:
    assert seen["balanced"]["code"] == 0, seen["balanced"]["said"]
    said = [decision["why"] for decision in seen["balanced"]["decisions"]]
    weights = re.findall(r"weights (\S+) -> (\S+),", "\n".join(said))
    assert weights == [("0=1,1=0", "0=3,1=1")], said
    # The model of the replay decides the same.
    replayed = [decision["weights"] for decision in seen["replayed"]["decisions"]]
    assert replayed == ["0=3,1=1"]


def test_memory_moves_once_and_stays(seen: dict[str, Any]) -> None:
    shares = [there / (here + there) for here, there in seen["places"]]
    assert shares[0] < SLACK
    assert shares[-1] == pytest.approx(SHARE, abs=SLACK)
    # On its way, it was never past its goal, and never went back.
    assert max(shares) < SHARE + SLACK
    back = [before - after for before, after in pairwise(shares)]
    assert max(back) < SLACK
    assert any(SLACK < share < SHARE - SLACK for share in shares), shares


def test_the_program_has_the_right_sums(seen: dict[str, Any]) -> None:
    assert seen["embed_code"] == 0
    assert seen["embed"]["rows_per_s"] > 0
