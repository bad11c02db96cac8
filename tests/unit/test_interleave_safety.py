# SPDX-License-Identifier: GPL-2.0-only
"""Sessions that outlive their command or process, and memory that must stay."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from helpers.fake_damon import FakeDamon
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.damon.admin import TOP
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave import lock, placement, report
from pageferry.interleave.control import Control, Request, Status
from pageferry.interleave.weights import parse_weights
from pageferry.sysfs import processes
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
    found = placement.read(damon, [PID, 43, 4711], (0, 1))
    # Bound memory does not count.
    assert found.bytes == {0: 4 * 4096, 1: 2 * 4096}
    assert sum(found.shares.values()) == pytest.approx(1.0)
    assert not placement.read(damon, [43], (0, 1)).known
    assert Control(damon, FakeMover()).placed([43], (0, 1)) == {0: 1.0}


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


@pytest.mark.parametrize("resting", [False, True])
def test_a_signal_during_a_start_leaves_no_kdamond(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch, resting: bool
) -> None:
    """SIGTERM comes after DAMON has begun, and before the tool knows its thread."""
    control = Control(damon, FakeMover())
    if resting:
        control.start(Request(PID, EVEN))
        control.rest(PID)
    write = FakeDamon.write

    def interrupt(self: FakeDamon, name: str, value: str) -> None:
        write(self, name, value)
        if value == "on":
            raise KeyboardInterrupt

    monkeypatch.setattr(FakeDamon, "write", interrupt)
    with pytest.raises(KeyboardInterrupt):
        if resting:
            control.set(PID, EVEN)
        else:
            control.start(Request(PID, EVEN))
    assert damon.running() == [] and damon.read(f"{TOP}/nr_kdamonds") == "0"
    assert [known.resting for known in control.store.all()] == [True] * resting


def test_a_kdamond_in_the_slot_of_a_killed_start_may_be_anothers(
    damon: FakeDamon,
) -> None:
    """After the kill, another program has made a kdamond of its own."""
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN)).session
    damon.write(f"{TOP}/0/state", "off")
    session.thread = None
    control.store.save(session)
    damon.write(f"{TOP}/nr_kdamonds", "1")
    damon.write(f"{TOP}/0/state", "on")
    with pytest.raises(PageferryError, match="another user of DAMON"):
        control.start(Request(43, EVEN, by="kernel"))
    assert damon.running() == ["0"]


def test_only_root_sees_kdamonds(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`doctor`, `top` and `interleave status` work for other users, too."""
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN, by="kernel")).session

    def refuse(path: Path) -> bytes:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    def fail(path: Path) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(Path, "read_bytes", refuse)
    assert control.admin.others() is None
    assert not control.is_running(session)
    # Another error does not say that no kdamond runs.
    monkeypatch.setattr(Path, "read_bytes", fail)
    with pytest.raises(PageferryError, match="cannot read"):
        control.admin.kdamonds()
    monkeypatch.undo()
    assert control.is_running(session)


def test_a_busy_kernel_does_not_hide_a_running_kdamond(
    damon: FakeDamon,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """The kernel refuses reads while it handles the request of another program."""
    control = Control(damon, FakeMover())
    read, busy = damon._text, list[str]()

    def read_busy(name: str) -> str:
        if name.startswith(TOP) and name.rpartition("/")[2] in busy:
            busy.remove(name.rpartition("/")[2])
            raise OSError(errno.EBUSY, os.strerror(errno.EBUSY))
        return read(name)

    def write_busy(name: str, value: str) -> None:
        write(name, value)
        if name.endswith("/state"):
            busy.extend(["state", "pid"])

    write = damon.write
    monkeypatch.setattr(damon, "_text", read_busy)
    monkeypatch.setattr(damon, "write", write_busy)
    # The kdamond holds the lock for a moment right after its start, too.
    session = control.start(Request(PID, EVEN, by="kernel")).session
    assert control.is_running(session) and not busy
    monkeypatch.setattr(damon, "write", write)
    busy += ["state", "pid"]
    assert control.is_running(session) and not busy
    assert control.admin.others() is None
    monkeypatch.setattr("pageferry.damon.admin._BUSY_WAIT_S", 0.0)
    # A turn of a kdamond may take many seconds.
    busy += ["state"] * 100
    assert control.is_running(session) and not busy
    assert "DAMON is busy" in capsys.readouterr().err
    busy += ["state"] * 1000
    with pytest.raises(PageferryError, match="cannot read"):
        control.admin.kdamonds()
    # A command that only watches does not wait.
    assert not control.admin.kdamonds(wait=False)[0].running


def test_a_busy_kdamond_has_the_figures_of_its_last_update(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    write = damon.write

    def busy(name: str, value: str) -> None:
        write(name, value)
        if value == "update_schemes_stats":
            raise PageferryError("cannot write", reason=os.strerror(errno.EBUSY))

    monkeypatch.setattr(damon, "write", busy)
    monkeypatch.setattr("pageferry.damon.admin._BUSY_WAIT_S", 0.0)
    assert control.rest(PID) == 81920
    assert damon.running() == []


@pytest.mark.parametrize(("first", "second"), [(PID, 43), (43, PID)])
def test_a_slot_has_one_session(damon: FakeDamon, first: int, second: int) -> None:
    """Another program has stopped the kdamond of the first."""
    control = Control(damon, FakeMover())
    control.start(Request(first, EVEN))
    damon.write(f"{TOP}/0/state", "off")
    control.start(Request(second, EVEN))
    with pytest.raises(PageferryError, match=f"no longer runs: {first}"):
        control.set(first, EVEN)
    assert not control.status(first).running and control.status(second).running
    control.stop(first)
    assert damon.running() == ["0"]
    control.stop(second)
    assert damon.running() == []


def test_a_kdamond_that_stops_by_itself_is_no_error(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel refuses commands to it: EINVAL or ECANCELED, and EPERM for `off`."""
    control = Control(damon, FakeMover())
    write = damon.write

    def stopped(name: str, value: str) -> None:
        write(name, value)
        number = {"off": errno.EPERM, "update_schemes_stats": errno.EINVAL}.get(value)
        if number is not None:
            write(name, "off")
            raise PageferryError("cannot write", reason=os.strerror(number))

    control.start(Request(PID, EVEN))
    monkeypatch.setattr(damon, "write", stopped)
    assert control.status(PID).kernel_stats["sz_applied"] == 81920
    monkeypatch.undo()
    control.drop(PID)
    control.start(Request(PID, EVEN))
    monkeypatch.setattr(damon, "write", stopped)
    control.stop(PID)
    assert damon.running() == [] and control.store.all() == []
    monkeypatch.undo()
    # It stops after the read of its state, and before that of its thread.
    control.start(Request(PID, EVEN))
    put(damon, f"{TOP}/0/pid", "-1\n")
    assert not control.admin.kdamonds()[0].running
    assert control.admin.others() is None


def test_a_directory_that_another_program_removes_is_gone(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    def removed(path: Path) -> bytes:
        raise OSError(errno.ENODEV, os.strerror(errno.ENODEV), path)

    monkeypatch.setattr(Path, "read_bytes", removed)
    assert damon.read_if_there(f"{TOP}/0/state") == ""


def test_two_commands_at_once_take_turns(damon: FakeDamon) -> None:
    with (
        lock.hold(damon, "interleave", 0.0, "wait"),
        pytest.raises(PageferryError, match="another pageferry command") as caught,
        lock.hold(damon, "interleave", 0.1, "wait"),
    ):
        pass
    assert "process " in (caught.value.reason or "")
    # Other users cannot hold it.
    assert damon.path("/run/pageferry/interleave.lock").stat().st_mode & 0o077 == 0
    with lock.hold(damon, "interleave", 0.0, "wait"):
        pass


def test_a_long_wait_for_another_command_is_told(
    damon: FakeDamon,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setattr(lock, "_SAY_AFTER_S", 0.0)
    with (
        lock.hold(damon, "interleave", 0.0, "wait"),
        pytest.raises(PageferryError, match="another pageferry command"),
        lock.hold(damon, "interleave", 0.2, "wait"),
    ):
        pass
    assert capsys.readouterr().err.count(f"waiting for process {os.getpid()}") == 1


def test_damon_stops_when_memory_has_arrived(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    assert control.rest(PID) == 81920
    assert control.rest(PID) == 0
    assert damon.running() == []
    found = control.status(PID)
    assert "DAMON rests" in report.status_text(found) and found.moved_pages == 20
    # The session goes on, so a second start is refused, and `set` wakes DAMON.
    with pytest.raises(PageferryError, match="already started"):
        control.start(Request(PID, EVEN))
    control.set(PID, parse_weights("0=3,1=1"))
    assert damon.running() == ["0"]
    assert control.status(PID).moved_pages == 40


def test_a_session_that_cannot_wake_goes_on_resting(damon: FakeDamon) -> None:
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    control.rest(PID)
    damon.write(f"{TOP}/nr_kdamonds", "1")
    damon.write(f"{TOP}/0/state", "on")
    with pytest.raises(PageferryError, match="another user of DAMON"):
        control.set(PID, parse_weights("0=3,1=1"))
    session = control.store.require(PID)
    assert session.resting and session.wanted == EVEN


@pytest.mark.parametrize("change", ["mbind", "cpuset"])
def test_damon_stops_if_an_owner_binds_memory_later(
    damon: FakeDamon, change: str
) -> None:
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    control.mind(PID)
    assert damon.running() == ["0"]
    if change == "mbind":
        put(damon, f"/proc/{PID}/numa_maps", f"{BASE:x} bind:0 anon=8 N0=8\n")
    else:
        put(damon, f"/proc/{PID}/status", "Mems_allowed_list:\t0\n")
    with pytest.raises(PageferryError, match=r"owner has bound|cpuset excludes"):
        control.mind(PID)
    assert damon.running() == []
    assert control.store.require(PID).resting
    with pytest.raises(PageferryError, match=r"owner has bound|cpuset excludes"):
        control.set(PID, parse_weights("0=3,1=1"))
    assert damon.running() == []


def test_a_change_waits_for_its_turn(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A `set` that read its session before the lock would undo another one."""
    monkeypatch.setattr("pageferry.interleave.lock._DAMON_S", 0.1)
    control = Control(damon, FakeMover())
    control.start(Request(PID, EVEN))
    with (
        lock.hold(damon, "interleave", 0.0, "wait"),
        pytest.raises(PageferryError, match="another pageferry command"),
    ):
        control.set(PID, parse_weights("0=3,1=1"))
    assert control.store.require(PID).wanted == EVEN and damon.commits == []


def test_status_says_what_watching_costs_now(
    damon: FakeDamon, monkeypatch: pytest.MonkeyPatch
) -> None:
    control = Control(damon, FakeMover())
    session = control.start(Request(PID, EVEN)).session
    damon.path(f"/proc/{session.thread}").mkdir()
    # The thread was busy for an hour, and used 20 ms of the last second.
    times = f"/proc/{session.thread}/schedstat"
    put(damon, times, "3600000000000 0 1")
    clock = iter([100.0, 100.4, 101.0])

    def sleep(seconds: float) -> None:
        assert seconds == pytest.approx(0.6)
        put(damon, times, "3600020000000 0 1")

    monkeypatch.setattr("time.monotonic", lambda: next(clock, 200.0))
    monkeypatch.setattr("time.sleep", sleep)
    meter = processes.CpuMeter(damon, {"kdamond": session.thread, "": None})
    found = Status(session, alive=False, running=True, costs=meter.shares(1.0))
    assert found.costs == {"kdamond": pytest.approx(0.02)}
    monkeypatch.undo()
    found.alive = True
    assert "watching     kdamond 2.00% of a CPU" in report.status_text(found)
    # Without CONFIG_SCHED_INFO the clock ticks must do.
    put(damon, times, "0 0 0")
    fields = " ".join(["0"] * 10 + ["150", "50"] + ["0"] * 6 + ["1000"])
    put(damon, f"/proc/{session.thread}/stat", f"9 (kdamond.0) S {fields} 0")
    assert processes.cpu_seconds(damon, session.thread or 0) == 2.0
