# SPDX-License-Identifier: GPL-2.0-only
"""Sessions that outlive their command or process, and memory that must stay."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import lock, placement, report
from pageferry.interleave.control import Control, Request
from pageferry.interleave.weights import parse_weights
from pageferry.sysfs.files import Files

PID = 42
EVEN = parse_weights("0=1,1=1")


@pytest.fixture
def damon(tmp_path: Path) -> FakeDamon:
    """A kernel whose DAMON can interleave, and two processes."""
    files = FakeDamon(root=tmp_path)
    for node in (0, 1):
        add_node(files, node)
    for pid in (PID, 43):
        add_process(files, pid)
        add_area(files, pid, BASE, list(range(100, 108)))
    return files


def put(files: Files, name: str, text: str) -> None:
    files.path(name).write_text(text)


def reuse(files: Files, pid: int) -> None:
    """Give the PID to another process."""
    stat = files.path(f"/proc/{pid}/stat")
    stat.write_text(stat.read_text().replace(f" {pid * 10} ", " 99999 "))


NUMA_MAPS = f"""\
00400000 default file=/usr/bin/x mapped=9 mapmax=3 N0=9 kernelpagesize_kB=4
{BASE:x} default anon=6 dirty=6 N0=4 N1=2 kernelpagesize_kB=4
7f5500000000 bind:1 anon=512 dirty=512 N1=1 kernelpagesize_kB=2048
7f5600000000 default file=/hugetlb huge dirty=1 N0=1 kernelpagesize_kB=2048
7ffe00000000 default stack anon=3 dirty=3 N0=3 kernelpagesize_kB=4
"""


def test_the_kernel_counts_pages_by_node(damon: FakeDamon) -> None:
    put(damon, f"/proc/{PID}/numa_maps", NUMA_MAPS)
    found = placement.read(damon, [PID, 43, 4711])
    assert found.bytes == {0: 4 * 4096, 1: 2 * 4096 + (2 << 20)}
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert not placement.read(damon, [43]).known
    assert Control(damon, FakeMover()).placed([43]) == {0: 1.0}


def test_bound_memory_stays_and_the_tool_says_so(damon: FakeDamon) -> None:
    put(damon, f"/proc/{PID}/numa_maps", f"{BASE:x} bind=static:0 anon=8 N0=8\n")
    mover, request = FakeMover(), Request(PID, EVEN)
    control = Control(damon, mover)
    with pytest.raises(PageferryError, match="owner has bound") as caught:
        control.start(Request(PID, EVEN, by="kernel"))
    assert "on node 0 (mbind)" in (caught.value.reason or "")
    done = control.start(request)
    assert done.session.by == "user" and mover.moves == []
    assert "mbind" in (done.why_user or "")
    assert report.status(control.status(PID))["unmovable"] == {
        "bound to other nodes by its owner": 8
    }
    # Bound to both nodes, it may move.
    put(damon, f"/proc/{PID}/numa_maps", f"{BASE:x} bind:0-1 anon=8 N0=8\n")
    assert control.set(PID, EVEN).report is not None and len(mover.moves) == 4


@pytest.mark.parametrize("by", ["kernel", "user"])
def test_a_cpuset_is_respected(damon: FakeDamon, by: str) -> None:
    put(damon, f"/proc/{PID}/status", "Name:\tx\nMems_allowed_list:\t0\n")
    with pytest.raises(PageferryError, match="cpuset excludes it") as caught:
        Control(damon, FakeMover()).start(Request(PID, EVEN, by=by))
    assert caught.value.code == ExitCode.USAGE
    assert damon.running() == []


def test_a_session_of_an_ended_process_is_no_obstacle(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    reuse(damon, PID)
    # The other process under this PID has no session, and can have one.
    assert control.store.find(PID) is None
    control.start(Request(43, EVEN))
    assert [known.pid for known in control.store.all()] == [43]
    assert damon.running() == ["0"]


def test_a_member_whose_pid_is_reused_is_left_alone(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN, members=(43,))).session
    assert control.pids_of(session) == [PID, 43]
    reuse(damon, 43)
    assert control.pids_of(session) == [PID]


def test_a_start_that_was_killed_leaves_nothing_in_the_way(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN)).session
    session.thread = None
    control.store.save(session)
    # The next command knows whose kdamond runs, and stops it.
    control.start(Request(43, EVEN))
    assert [known.pid for known in control.store.all()] == [43]
    assert damon.running() == ["0"]


def test_two_commands_at_once_take_turns(damon: FakeDamon) -> None:
    with (
        lock.hold(damon, "interleave", 0.0, "wait"),
        pytest.raises(PageferryError, match="another pageferry command") as caught,
        lock.hold(damon, "interleave", 0.1, "wait"),
    ):
        pass
    assert "process " in (caught.value.reason or "")
    with lock.hold(damon, "interleave", 0.0, "wait"):
        pass


def test_damon_rests_when_memory_has_arrived(damon: FakeDamon) -> None:
    aggregate = "/sys/kernel/mm/damon/admin/kdamonds/0/contexts/0/monitoring_attrs"
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    control.rest(PID, 60.0)
    control.rest(PID, 60.0)
    assert damon.commits == ["commit"]
    assert damon.read(f"{aggregate}/intervals/aggr_us") == "60000000"
    control.set(PID, parse_weights("0=3,1=1"))
    assert damon.read(f"{aggregate}/intervals/aggr_us") == "500000"


def test_status_says_what_watching_costs(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN)).session
    damon.path(f"/proc/{session.thread}").mkdir()
    fields = " ".join(["0"] * 10 + ["150", "50"] + ["0"] * 6 + ["1000"])
    put(damon, f"/proc/{session.thread}/stat", f"9 (kdamond.0) S {fields} 0")
    put(damon, "/proc/uptime", "110.00 0")
    found = control.status(PID)
    # Two seconds of CPU time in a hundred.
    assert found.costs == {"kdamond": pytest.approx(0.02)}
    assert "watching     kdamond 2.00% of a CPU" in report.status_text(found)
