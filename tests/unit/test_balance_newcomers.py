# SPDX-License-Identifier: GPL-2.0-only
"""Processes and memory that come after a change of weights, and owners that bind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.balance_machine import Machine, furnish, put, show
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_process
from pageferry.interleave.user_space import Quota
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE


@pytest.fixture
def damon(tmp_path: Path) -> FakeDamon:
    """A kernel with DAMON, and programs whose memory is at home."""
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    show(damon, 8, 0)
    return damon


def newcomer(files: Files) -> None:
    add_process(files, 60, name="merci")
    add_area(files, 60, BASE + (1 << 30), list(range(200, 208)))
    put(files, "/proc/60/statm", "100 8 0 0 0 0 0")


@pytest.mark.parametrize(("pages", "joins"), [(11, False), (12, True)])
def test_a_new_process_needs_budget_and_the_way_back(
    tmp_path: Path, pages: int, joins: bool
) -> None:
    """4 pages have moved, 2 would move, and 6 must be able to come back."""
    files = Files(root=tmp_path)
    furnish(files)
    mover = FakeMover()
    machine = Machine(files, mover, Quota(pages * PAGE, 3600.0))
    machine.until(20.0)
    assert len(mover.moves) == 2
    newcomer(files)
    machine.until(26.0)
    assert (len(mover.moves) > 2) == joins
    waits = [line for line in machine.said if "processes wait at home" in line]
    assert len(waits) == (0 if joins else 1)
    session = machine.control.store.require(42)
    assert session.members == ([43, 60] if joins else [43])


def test_new_memory_wakes_damon_for_a_while(damon: FakeDamon) -> None:
    machine = Machine(damon, FakeMover(), again="3s")
    machine.until(15.0)
    show(damon, 6, 2)
    machine.until(20.0)
    assert damon.running() == []
    put(damon, "/proc/42/statm", "100 16 0 0 0 0 0")
    machine.until(21.0)
    assert damon.running() == ["0"]
    machine.until(29.0)
    assert damon.running() == []


def test_new_memory_waits_for_the_budget(damon: FakeDamon) -> None:
    machine = Machine(damon, FakeMover(), Quota(8 * PAGE, 3600.0), again="3s")
    machine.until(15.0)
    show(damon, 6, 2)
    machine.until(20.0)
    put(damon, "/proc/42/statm", "100 16 0 0 0 0 0")
    machine.until(29.0)
    assert damon.running() == []
    assert any("new memory waits at home" in line for line in machine.said)


def test_more_than_expected_counts_for_the_budget(damon: FakeDamon) -> None:
    """FakeDamon says that each kdamond moved 20 pages; 4 were expected."""
    machine = Machine(damon, FakeMover(), Quota(100 * PAGE, 3600.0), again="3s")
    machine.until(15.0)
    show(damon, 6, 2)
    machine.until(22.0)
    assert machine.balancer.admits(machine.now_s, 0, 80 * PAGE)
    assert not machine.balancer.admits(machine.now_s, 0, 81 * PAGE)


def test_memory_that_is_bound_during_a_move_stays(damon: FakeDamon) -> None:
    mover = FakeMover()
    machine = Machine(damon, mover)
    machine.until(14.0)
    assert damon.running() == ["0"]
    put(damon, "/proc/42/numa_maps", f"{BASE:x} bind:0 anon=8 N0=8 kernelpagesize_kB=4")
    machine.service._next_look_s = 0.0
    machine.until(16.0)
    # DAMON has stopped. The tool moves the child's memory, which is not bound.
    assert damon.running() == []
    assert machine.control.store.require(42).by == "user"
    assert mover.moves == [(BASE + 3 * PAGE, 1), (BASE + 7 * PAGE, 1)]
    assert len([line for line in machine.said if "has bound" in line]) == 1


def test_a_cpuset_that_shrinks_during_a_move_stops_it(damon: FakeDamon) -> None:
    machine = Machine(damon, FakeMover())
    machine.until(14.0)
    put(damon, "/proc/43/status", "Mems_allowed_list:\t0")
    machine.service._next_look_s = 0.0
    machine.until(29.0)
    assert damon.running() == []
    assert machine.control.store.all() == []
    assert len([line for line in machine.said if "cpuset" in line]) == 1
