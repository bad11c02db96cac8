# SPDX-License-Identifier: GPL-2.0-only
"""Processes and memory that come after a change of weights, and owners that bind it."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.balance_machine import Machine, furnish, put, show
from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_process
from pageferry.balance import trace
from pageferry.balance.balancer import Kind
from pageferry.errors import PageferryError
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


@pytest.mark.parametrize(("pages", "joins"), [(9, False), (10, True)])
def test_a_new_process_needs_budget_and_the_way_back(
    tmp_path: Path, pages: int, joins: bool
) -> None:
    """2 pages have moved, 2 would move, and 6 must be able to come back."""
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


def test_less_than_expected_is_refunded(damon: FakeDamon) -> None:
    """FakeDamon says that each kdamond moved 20 pages; 64 were expected."""
    put(damon, "/proc/42/statm", "100 248 0 0 0 0 0")
    machine = Machine(damon, FakeMover(), Quota(200 * PAGE, 3600.0), again="3s")
    machine.until(14.0)
    assert machine.balancer.is_moving
    assert not machine.balancer.admits(machine.now_s, 0, 137 * PAGE)
    show(damon, 6, 2)
    machine.until(22.0)
    assert machine.balancer.admits(machine.now_s, 0, 180 * PAGE)
    assert not machine.balancer.admits(machine.now_s, 0, 181 * PAGE)
    assert machine.service.figures.moved_bytes == 20 * PAGE


def test_a_restart_knows_what_is_spread_and_spent(damon: FakeDamon) -> None:
    """The first service leaves memory spread, as on_stop = "leave" says."""
    budget = Quota(25 * PAGE, 3600.0)
    machine = Machine(damon, FakeMover(), budget, again="3s")
    machine.until(15.0)
    show(damon, 6, 2)
    machine.until(20.0)
    machine.service.stop()
    assert machine.control.store.all() == []
    again = Machine(damon, FakeMover(), budget, again="3s")
    again.now_s = 20.0
    # DAMON has moved 20 of 25 pages. The quarter on the far node has 4.
    assert again.balancer.admits(20.0, 0, 5 * PAGE)
    assert not again.balancer.admits(20.0, 0, 6 * PAGE)
    assert again.until(29.0) == []
    # One copy of the program has ended, and its memory comes home.
    assert again.until(40.0) == [Kind.HOME]
    assert damon.running() == ["0"]


def test_a_program_that_begins_spread_comes_home(damon: FakeDamon) -> None:
    """Its first process was at home, and has ended."""
    machine = Machine(damon, FakeMover())
    machine.until(3.0)
    for pid in (42, 43):
        damon.path(f"/proc/{pid}/stat").unlink()
    machine.until(4.0)
    newcomer(damon)
    line = f"{BASE:x} default anon=8 dirty=8 N0=4 N1=4 kernelpagesize_kB=4"
    put(damon, "/proc/60/numa_maps", line)
    assert machine.until(10.0) == [Kind.HOME]


def test_memory_that_cannot_move_is_tried_once_more(damon: FakeDamon) -> None:
    """Pages stay at home, as pinned ones do: half of the quarter that should leave."""
    machine = Machine(damon, FakeMover(), again="3s")
    machine.service.source.moments = [trace.Moment(0.0, {}, 108e9)]  # type: ignore[attr-defined]
    machine.until(4.0)
    show(damon, 7, 1)
    # The balancer waits for a minute, tries once more, and waits again.
    machine.until(140.0)
    started = damon.threads
    assert damon.running() == []
    machine.until(700.0)
    assert damon.threads == started


def test_bound_memory_does_not_count_for_the_placement(damon: FakeDamon) -> None:
    for pid in (42, 43):
        line = f"{BASE:x} default anon=8 dirty=8 N0=6 N1=2 kernelpagesize_kB=4"
        put(damon, f"/proc/{pid}/numa_maps", f"{line}\n7f5500000000 bind:0 anon=9 N0=9")
    machine = Machine(damon, FakeMover())
    machine.until(1.0)
    assert machine.service._shares == {0: 0.75, 1: 0.25}
    for pid in (42, 43):
        put(damon, f"/proc/{pid}/numa_maps", f"{BASE:x} bind:0 anon=8 N0=8")
    machine = Machine(damon, FakeMover())
    assert machine.until(30.0) == [] and damon.commits == []
    assert machine.said == ["their owners have bound all memory of the processes"]


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


def test_a_session_that_cannot_end_is_ended_later(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = Machine(damon, FakeMover())
    machine.until(14.0)
    for pid in (42, 43):
        damon.path(f"/proc/{pid}/stat").unlink()
    write = FakeDamon.write

    def fail(self: FakeDamon, name: str, value: str) -> None:
        if value == "off":
            raise PageferryError("cannot write", value=name, reason="Invalid")
        write(self, name, value)

    with monkeypatch.context() as patch:
        patch.setattr(FakeDamon, "write", fail)
        machine.until(20.0)
    assert damon.running() == ["0"]
    assert len([line for line in machine.said if "cannot write" in line]) == 1
    machine.until(22.0)
    assert damon.running() == [] and machine.control.store.all() == []


def test_a_cpuset_that_shrinks_during_a_move_stops_it(damon: FakeDamon) -> None:
    machine = Machine(damon, FakeMover())
    machine.until(14.0)
    put(damon, "/proc/43/status", "Mems_allowed_list:\t0")
    machine.service._next_look_s = 0.0
    machine.until(29.0)
    assert damon.running() == []
    assert machine.control.store.all() == []
    assert len([line for line in machine.said if "cpuset" in line]) == 1
