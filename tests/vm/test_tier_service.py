# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry tier` moves real memory between two tiers."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.interleave import PAGES_PER_MIB, boot
from helpers.tier_guest import FULL, HEADROOM
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
MIB = 16
PAGES = MIB * PAGES_PER_MIB


@pytest.fixture(scope="module")
def seen(kernel_vm: BuiltKernel) -> dict[str, Any]:
    """Results of all cases, from one boot."""
    cases = ("processes", "all", "down", "killed")
    return boot(kernel_vm, "tiered", MIB, cases, guest="helpers.tier_guest")


@pytest.mark.parametrize("case", ["processes", "all"])
def test_hot_memory_goes_up_and_cold_memory_stays(
    seen: dict[str, Any], case: str
) -> None:
    found = seen[case]
    assert found["before"]["hot"][:2] == found["before"]["cold"][:2] == [0, PAGES]
    assert found["hot"][0] >= 0.9 * PAGES, found["said"]
    assert found["cold"][1] >= 0.9 * PAGES, found["said"]
    assert all(verified["ok"] for verified in found["verified"])
    assert found["status"]["promoted_bytes"] >= 0.9 * PAGES * 4096
    assert found["code"] == 0 and found["left"] == "0", found["said"]


def test_cold_memory_goes_down_for_headroom(seen: dict[str, Any]) -> None:
    found = seen["down"]
    assert found["before"][1] == 0
    # 4% of the node are missing at the begin.
    assert found["free"] >= 0.95 * HEADROOM, found["said"]
    least = 0.8 * (HEADROOM - FULL) * found["total_pages"]
    assert found["cold"][1] >= least, found["said"]
    assert found["hot"][0] >= 0.9 * PAGES, found["said"]
    assert all(verified["ok"] for verified in found["verified"])
    assert found["status"]["demoted_bytes"] >= least * 4096


def test_a_killed_service_is_stopped_later(seen: dict[str, Any]) -> None:
    found = seen["killed"]
    assert found["left"] != "0" and found["after"] == "0", found["said"]
    assert found["stopped"]["code"] == 0 and found["stopped"]["stopped_kdamonds"] == 1
    assert found["verified"]["ok"]
