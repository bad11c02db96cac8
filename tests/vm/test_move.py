# SPDX-License-Identifier: GPL-2.0-only
"""Moves processes with pages of every kind, and checks the reason of each."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from helpers import guests
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest

pytestmark = pytest.mark.vm
ROOT = Path(__file__).resolve().parents[2]
CASES = (
    *("kinds", "whole", "stall", "full", "interrupted", "ends"),
    *("cpuset", "exchange", "user"),
)
Found = dict[str, Any]


def boot(kernel: BuiltKernel, *cases: str) -> Found:
    """Boot once, and return the results of the cases."""
    outcome = guests.run(
        VmRequest(
            command=(sys.executable, "-m", "helpers.move_guest", *cases),
            image=kernel.image,
            modules=kernel.modules,
            topology="two-node",
            append=("secretmem.enable=1", "brd.rd_nr=1"),
            timeout_s=1800.0,
            cwd=ROOT,
            environment={"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
        )
    )
    assert outcome.exit_code == 0, f"{outcome.stderr}\n{outcome.serial_tail()}"
    assert not outcome.findings
    document = json.loads(outcome.stdout)
    assert isinstance(document, dict)
    return document


@pytest.fixture(scope="module")
def ours(kernel_vm: BuiltKernel) -> Found:
    """Results with the kernel of users."""
    return boot(kernel_vm, *CASES)


@pytest.fixture(scope="module")
def stock(kernel_vanilla: BuiltKernel) -> Found:
    """Results with an unchanged kernel."""
    return boot(kernel_vanilla, "kinds", "stall", "user")


@pytest.fixture(params=["ours", "stock"])
def seen(request: pytest.FixtureRequest) -> Found:
    """Results with each kernel in turn."""
    found = request.getfixturevalue(request.param)
    assert isinstance(found, dict)
    return found


def reasons(done: Found) -> dict[str, int]:
    return {row["reason"]: row["pages"] for row in done["stayed"]}


def adds_up(done: Found) -> None:
    """Check that each page has one outcome."""
    others = done["moved_pages"] + done["movable_pages"]
    assert done["found_pages"] == others + sum(reasons(done).values())


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("anonymous", "anonymous"),
        ("locked", "anonymous"),
        ("shmem", "shmem"),
        ("file", "file"),
        ("huge", "anonymous huge"),
        ("mthp", "anonymous mTHP"),
        ("hugetlb", "hugetlb"),
    ],
)
def test_each_kind_moves(seen: Found, name: str, kind: str) -> None:
    found = seen["kinds"][name]
    done = found["done"]
    adds_up(done)
    assert done["code"] == 0, done
    assert done["moved_pages"] == done["pages"] == done["found_pages"]
    # A file system may use large folios.
    assert all(row["kind"].startswith(kind) for row in done["kinds"])
    if "foreseen" in found:
        assert found["foreseen"]["movable_pages"] == done["pages"]


@pytest.mark.parametrize(
    ("name", "reason", "code"),
    [
        ("untouched", "never_touched", 0),
        ("zero", "zero_page", 0),
        ("swapped", "not_present", 0),
        ("shared", "shared", 0),
        ("ring", "pinned", 1),
        ("pipe", "pinned", 1),
        ("secret", "unevictable", 1),
    ],
)
def test_each_page_that_stays_has_its_reason(
    seen: Found, name: str, reason: str, code: int
) -> None:
    done = seen["kinds"][name]["done"]
    adds_up(done)
    assert reasons(done) == {reason: done["pages"]}
    assert done["moved_pages"] == 0
    assert done["code"] == code
    # Only the attempt shows a pin by a pipe.
    if name != "pipe":
        assert reasons(seen["kinds"][name]["foreseen"]) == {reason: done["pages"]}


def test_holders_are_named(seen: Found) -> None:
    ring, pipe = seen["kinds"]["ring"]["done"], seen["kinds"]["pipe"]["done"]
    (holder,) = ring["pinned_by"]
    assert holder["pages"] == ring["pages"]
    assert "io_uring" in holder["holder"]
    assert not pipe["pinned_by"]
    assert any("vmsplice" in suspect["holder"] for suspect in pipe["suspects"])


def test_all_moves_shared_pages(seen: Found) -> None:
    done = seen["kinds"]["all"]
    assert done["code"] == 0
    assert done["moved_pages"] == done["pages"]


def test_a_second_move_finds_the_pages_there(seen: Found) -> None:
    done = seen["kinds"]["again"]
    assert reasons(done) == {"already_there": done["pages"]}


def test_an_offline_check_names_the_process(seen: Found) -> None:
    found = seen["kinds"]["offline"]
    assert found["code"] == 1
    texts = [row["text"] for block in found["blocks"] for row in block["blockers"]]
    who = f"of process {seen['kinds']['pid']} ("
    assert any("io_uring" in text and who in text for text in texts)
    assert any("secret memory" in text and who in text for text in texts)


def test_a_whole_process_adds_up(ours: Found) -> None:
    done = ours["whole"]["done"]
    adds_up(done)
    for kind in done["kinds"]:
        assert 0 <= kind["moved_pages"] <= kind["asked_pages"] <= kind["found_pages"]
    assert done["kept_pages"] == sum(
        reasons(done).get(reason, 0) for reason in ("pinned", "unevictable")
    )


def test_no_wait_outlasts_its_call(seen: Found) -> None:
    """A thread that maps memory gets its turn between two calls."""
    in_time = False
    for found in seen["stall"]["tries"]:
        done, calls, waits = found["done"], found["calls"], found["waits"]
        assert done["code"] == 0 and done["moved_pages"] == done["pages"]
        assert len(calls) == done["steps"]["count"] >= 4
        spans = [sum(begin < a and b < end for a, b in calls) for begin, end in waits]
        late = sum(span > 1 for span in spans)
        in_time |= max(spans) <= len(calls) / 4 and late <= len(calls) / 10
    assert in_time


def test_a_full_node_gets_what_fits(ours: Found) -> None:
    done, rest = ours["full"]["done"], ours["full"]["rest"]
    adds_up(done)
    assert done["code"] == 1
    assert set(reasons(done)) == {"no_room"}
    assert 0 < done["moved_pages"] < done["pages"]
    assert rest["code"] == 0
    assert rest["moved_pages"] == reasons(done)["no_room"]


def test_a_signal_ends_the_move_between_steps(ours: Found) -> None:
    done, rest = ours["interrupted"]["done"], ours["interrupted"]["rest"]
    assert done["code"] == 130 and done["interrupted"]
    # The parts behind the last one were not even looked at.
    assert 0 < done["moved_pages"] < done["pages"]
    assert rest["moved_pages"] == done["pages"] - done["moved_pages"]


def test_a_process_that_ends_meanwhile(ours: Found) -> None:
    done = ours["ends"]["done"]
    assert done["code"] == 1
    assert done["ended_processes"] == 1
    assert reasons(done)["gone"] > 0


def test_a_cpuset_is_named(ours: Found) -> None:
    refused, done = ours["cpuset"]["refused"], ours["cpuset"]["done"]
    assert refused["code"] == 1
    assert "cpuset" in refused["error"]["what"]
    assert done["moved_pages"] >= refused["pages"]


def is_at(seen: Found, who: str, node: int) -> None:
    """Check that a region is on a node, and that each byte is right."""
    nodes = seen[who]["nodes"]
    assert nodes[node] == sum(nodes) == seen[who]["pages"]
    assert seen[who]["regions"] == 2 and seen[who]["wrong_bytes"] == 0


def test_pages_change_places_on_a_full_node(ours: Found) -> None:
    found = ours["exchange"]
    is_at(found["before"], "hot", 0)
    is_at(found["before"], "cold", 1)
    assert reasons(found["third"])["no_room"] > 0
    # The kernel may have freed a few small pages since, but no huge page.
    plain = found["plain"]
    assert plain["movable_pages"] == 0 and plain["kept_pages"] == plain["pages"]
    assert set(reasons(plain)) <= {"no_room", "no_large_room"}
    foreseen = found["foreseen"]["done"]
    assert foreseen["movable_pages"] == foreseen["pages"]
    is_at(found["foreseen"]["after"], "hot", 0)
    for name in ("small", "huge"):
        done = found[name]["done"]
        adds_up(done)
        assert done["code"] == 0, done
        pages = done["pages"]
        assert done["moved_pages"] == done["partner"]["moved_pages"] == pages
        is_at(found[name]["after"], "hot", 1)
        is_at(found[name]["after"], "cold", 0)
    assert found["huge"]["done"]["steps"]["count"] == 2


@pytest.mark.parametrize(("rule", "hot", "cold"), [("bound", 0, 1), ("cpuset", 1, 0)])
def test_a_rule_of_the_cold_process_keeps_all_pages(
    ours: Found, rule: str, hot: int, cold: int
) -> None:
    found = ours["exchange"][rule]
    done = found["done"]
    assert done["code"] == 1
    assert reasons(done) == {"partner_bound": done["pages"]}
    assert done["moved_pages"] == done["partner"]["moved_pages"] == 0
    is_at(found["after"], "hot", hot)
    is_at(found["after"], "cold", cold)


def test_pages_come_back_without_the_rule(ours: Found) -> None:
    done, after = ours["exchange"]["back"]["done"], ours["exchange"]["back"]["after"]
    assert done["code"] == 0
    assert done["moved_pages"] == done["partner"]["moved_pages"] == done["pages"]
    is_at(after, "hot", 0)
    # Other pages of the cold process may have gone instead of these.
    assert after["cold"]["wrong_bytes"] == 0


def test_without_root(seen: Found) -> None:
    found = seen["user"]
    done = found["anonymous"]
    assert done["code"] == 0, done
    assert done["moved_pages"] == done["pages"]
    assert "without root" in done["unseen"][0]
    assert set(reasons(found["zero"])) == {"zero_page"}
    assert set(reasons(found["untouched"])) == {"never_touched"}
    assert found["foreign"]["code"] == 1
    assert "CAP_SYS_NICE" in found["all"]["error"]["reason"]
