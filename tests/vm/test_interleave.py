# SPDX-License-Identifier: GPL-2.0-only
"""Interleaves running processes, on a machine with two nodes."""

from __future__ import annotations

from typing import Any

import pytest

from helpers.interleave import boot, check_damon, check_shares
from pageferry.kernel.build import BuiltKernel

pytestmark = pytest.mark.vm
MIB = 32
PAGES = MIB * 256
CASES = (
    *("shares-2M", "writing-4K", "damon-4K", "damon-2M", "auto", "hot"),
    *("full", "damon-full", "ends", "quota", "damon-quota"),
    *("empty", "areas", "damon-areas", "others", "balance"),
)
# One node has no CPUs, and the firmware reports the speed of both.
TIERED_CASES = ("damon-2M", "shares-4K", "rates")


@pytest.fixture(scope="module")
def seen(kernel_vm: BuiltKernel) -> dict[str, Any]:
    """Results of the cases where both nodes have CPUs."""
    return boot(kernel_vm, "two-node", MIB, CASES)


@pytest.fixture(scope="module")
def seen_tiered(kernel_vm: BuiltKernel) -> dict[str, Any]:
    """Results of the cases where one node has no CPUs."""
    return boot(kernel_vm, "tiered", MIB, TIERED_CASES)


@pytest.mark.parametrize("case", ["shares-2M", "writing-4K"])
def test_shares_are_as_wanted_and_stay(seen: dict[str, Any], case: str) -> None:
    check_shares(seen[case], MIB)


def test_shares_are_as_wanted_on_a_node_without_cpus(
    seen_tiered: dict[str, Any],
) -> None:
    check_shares(seen_tiered["shares-4K"], MIB)
    check_damon(seen_tiered["damon-2M"], MIB)


@pytest.mark.parametrize("case", ["damon-4K", "damon-2M"])
def test_damon_puts_the_same_pages_in_the_same_places(
    seen: dict[str, Any], case: str
) -> None:
    check_damon(seen[case], MIB)


def test_whoever_can_does_it(seen: dict[str, Any]) -> None:
    found = seen["auto"]
    assert found["asked"]["code"] == 0
    assert found["done"]["code"] == found["stopped"]["code"] == 0
    assert found["done"]["by"] == "kernel"
    # The settings of DAMON are restored.
    assert found["left"] == "0"


@pytest.mark.parametrize("case", ["shares-2M", "writing-4K"])
def test_nothing_is_lost_or_split(seen: dict[str, Any], case: str) -> None:
    found = seen[case]
    for verified in (found["verified"], found["verified_home"]):
        assert verified["ok"]
        assert verified["split_folios"] == 0
        assert bool(verified["writes"]) == case.startswith("writing")


def test_memory_comes_home(seen: dict[str, Any]) -> None:
    assert seen["shares-2M"]["stopped"]["code"] == 0
    assert seen["shares-2M"]["home"][0] == PAGES


def test_a_full_node_gets_what_fits(seen: dict[str, Any]) -> None:
    found = seen["full"]
    assert found["done"]["code"] == 1
    assert "not all of it fits" in found["done"]["said"]
    assert 0 < found["nodes"][1] < sum(found["nodes"])
    # Pages that did not fit, and other memory of the process. A full node may drop
    # pages of the program, which return to the node that touches them.
    here = sum(node["pages"] for node in found["status"]["nodes"])
    others = here - sum(found["nodes"])
    no_room, left = found["done"]["no_room_pages"], found["status"]["left_pages"]
    assert 0 <= others < sum(found["nodes"]) / 16
    assert no_room <= left <= no_room + others
    # The kernel split no huge page, not even to make it fit.
    assert found["verified"]["ok"] and found["verified"]["split_folios"] == 0
    assert found["rest"]["code"] == 0 and found["rest"]["no_room_pages"] == 0


def test_damon_gives_a_full_node_what_fits(seen: dict[str, Any]) -> None:
    found = seen["damon-full"]
    assert 0 < found["nodes"][1] < sum(found["nodes"])
    # The same as above.
    here = sum(node["pages"] for node in found["status"]["nodes"])
    others = here - sum(found["nodes"])
    left = found["status"]["left_pages"]
    assert 0 <= others < sum(found["nodes"]) / 16
    assert found["nodes"][0] <= left <= found["nodes"][0] + others
    assert found["verified"]["ok"] and found["verified"]["split_folios"] == 0
    # DAMON continues, so that the rest moves when memory is free.
    assert found["rest"]["left_pages"] == found["after"][0] == 0
    assert found["stopped"]["code"] == 0


def test_a_process_that_ends_in_the_middle(seen: dict[str, Any]) -> None:
    done = seen["ends"]["done"]
    assert done["code"] == 1
    assert done["error"]["what"] == "the process ended meanwhile"
    assert "MiB had been moved until then" in done["error"]["detail"]
    assert seen["ends"]["stopped"]["code"] == 0


def test_a_quota_takes_its_time(seen: dict[str, Any]) -> None:
    # Half of the memory in a second, of which the first half moves at once.
    assert seen["quota"]["done"]["seconds"] > 1
    assert seen["quota"]["done"]["code"] == 0


def test_damon_keeps_to_a_quota(seen: dict[str, Any]) -> None:
    found = seen["damon-quota"]
    wanted = found["wanted_mib_per_s"]
    assert abs(found["seen_mib_per_s"] / wanted - 1) < 0.1, found


def test_what_is_hot_moves_and_the_rest_does_not(seen: dict[str, Any]) -> None:
    used, idle = seen["hot"]["used"], seen["hot"]["idle"]
    assert used["by"] == idle["by"] == "kernel"
    assert used["nodes"][:2] == [0, PAGES]
    assert idle["nodes"][:2] == [PAGES, 0]
    assert used["verified"]["ok"] and idle["verified"]["ok"]
    assert used["verified"]["writes"]


def test_processes_without_memory(seen: dict[str, Any]) -> None:
    found = seen["empty"]
    said = {name: found[name]["error"]["what"] for name in ("zombie", "thread", "gone")}
    assert said == {
        "zombie": "this process has ended",
        "thread": "this process has no memory of its own",
        "gone": "no such process",
    }
    assert {found[name]["code"] for name in said} == {2}


@pytest.mark.parametrize("case", ["areas", "damon-areas"])
def test_a_thousand_areas_that_are_shared(seen: dict[str, Any], case: str) -> None:
    found = seen[case]
    assert found["first"]["code"] == found["again"]["code"] == 0
    assert found["status"]["moved_pages"] >= 4000
    assert found["intact"]
    for node in found["status"]["nodes"]:
        assert abs(node["actual_share"] - 0.5) < 0.005
    if case == "areas":
        assert found["again"]["moved_pages"] == 0
    else:
        assert found["status"]["left_pages"] == 0


def test_others_who_use_damon_are_left_alone(seen: dict[str, Any]) -> None:
    found = seen["others"]
    assert found["configured"]["code"] == found["refused"]["code"] == 1
    assert "left alone" in found["refused"]["error"]["what"]
    assert found["without"]["code"] == 0
    assert found["same"]


def test_bandwidths_come_from_the_firmware_or_are_measured(
    seen_tiered: dict[str, Any],
) -> None:
    found = seen_tiered["rates"]
    assert found["source"] == "HMAT"
    assert found["known"]["0"] > found["known"]["1"] > 0
    assert [node["id"] for node in found["measured"]["nodes"]] == [0, 1]
    assert all(node["bytes_per_s"] > 0 for node in found["measured"]["nodes"])


def test_the_balancer_spreads_memory_and_brings_it_home(seen: dict[str, Any]) -> None:
    found = seen["balance"]
    assert found["done"]["code"] == 0
    changes = [d for d in found["done"]["decisions"] if "->" in d["why"]]
    assert [change["kind"] for change in changes] == ["spread", "home"]
    assert "0=1,1=0 -> 0=3,1=1" in changes[0]["why"]
    # In between, pages really were on another node.
    places = [pages[:2] for pages in found["meanwhile"]]
    assert [PAGES * 3 // 4, PAGES // 4] in places
    assert found["after"][:2] == [PAGES, 0]
    assert found["verified"]["ok"]
    assert 'changes_total{kind="spread"} 1' in found["metrics"]
