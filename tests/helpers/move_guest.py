# SPDX-License-Identifier: GPL-2.0-only
"""What tests of `pageferry move` do in the guest; prints one JSON document.

python3 -m helpers.move_guest CASE...
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import ClassVar
from unittest import mock

from helpers.interleave_guest import fill
from helpers.interleave_hold import Document, tool
from helpers.move_hold import PAGE, REGIONS, checked, libc
from pageferry.cli import main as pageferry
from pageferry.commands import move as command
from pageferry.interleave.moving import MovePages
from pageferry.move.mover import NOWHERE
from pageferry.sysfs.files import Files

WAY = ("--from", "0", "--to", "1")
THP = Path("/sys/kernel/mm/transparent_hugepage")
DISK = Path("/tmp/move-disk")
NOBODY = 65534
PR_SET_DUMPABLE = 4
STALL_TRIES = 3


def move(pid: str, region: Sequence[int], *words: str) -> Document:
    """Move a region of a process."""
    start, pages = region
    span = f"{start:x}-{start + pages * PAGE:x}"
    done = tool("move", "--pid", pid, *WAY, "--range", span, *words)
    return {**done, "pages": pages}


class Process:
    """helpers/move_hold.py in a process of its own."""

    def __init__(self, *names: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.move_hold", str(DISK / "data"), *names],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.pid = str(self.process.pid)
        self.regions: Document = self._line()

    def _line(self) -> Document:
        assert self.process.stdout is not None
        document = json.loads(self.process.stdout.readline())
        assert isinstance(document, dict)
        return document

    def ask(self, word: str) -> Document:
        """Let the process do something."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._line()

    def move(self, name: str, *words: str) -> Document:
        """Move one region."""
        return move(self.pid, self.regions[name], *words)

    def end(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()


def prepare() -> None:
    """Make a disk, a swap area and a hugetlb pool available."""
    DISK.mkdir()
    steps = (
        ["mkfs.ext4", "-q", "-F", "-b", "4096", "/dev/ram0"],
        ["mount", "/dev/ram0", str(DISK)],
        ["mkswap", "/dev/zram0"],
        ["swapon", "/dev/zram0"],
    )
    Path("/sys/block/zram0/disksize").write_text("64M")
    for step in steps:
        subprocess.run(step, check=True, stdout=subprocess.DEVNULL)
    for node in (0, 1):
        pool = f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB"
        Path(pool, "nr_hugepages").write_text("4")


def kinds() -> Document:
    """Move each region by itself, first in a dry run."""
    names = [name for name in REGIONS if name not in ("big", "mthp")]
    process = Process(*names)
    found: Document = {}
    for name in names:
        foreseen = process.move(name, "--dry-run")
        done = process.move(name)
        found[name] = {"foreseen": foreseen, "done": done}
    found["all"] = process.move("shared", "--all")
    found["again"] = process.move("anonymous")
    found["offline"] = tool("move", "--offline-check", "0")
    found["pid"] = process.pid
    process.end()
    (THP / "hugepages-64kB/enabled").write_text("madvise")
    process = Process("mthp")
    found["mthp"] = {"done": process.move("mthp")}
    process.end()
    return found


def whole() -> Document:
    """Move the whole process."""
    process = Process(*(name for name in REGIONS if name != "big"))
    done = tool("move", "--pid", process.pid, *WAY, "--all")
    process.end()
    return {"done": done}


class Noting(MovePages):
    """The system call, with the begin and the end of each call that moves pages."""

    calls: ClassVar[list[tuple[int, int]]] = []

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Move pages."""
        begin = time.monotonic_ns()
        statuses = super().move(pid, addresses, node)
        if list(addresses) != [NOWHERE]:
            self.calls.append((begin, time.monotonic_ns()))
        return statuses


def stall() -> Document:
    """Move memory while a thread maps and unmaps."""
    # The host may stop the thread's CPU for a good part of one move.
    return {"tries": [stall_once() for _ in range(STALL_TRIES)]}


def stall_once() -> Document:
    process, Noting.calls = Process("big"), []
    process.ask("map")
    with mock.patch.object(command, "MovePages", Noting):
        done = process.move("big", "--stall-limit", "50")
    waits = process.ask("stop")["waits"]
    process.end()
    return {"waits": waits, "calls": Noting.calls, "done": done}


def full() -> Document:
    """Move to a node that has room for a part only."""
    process = Process("big")
    in_the_way = fill(1)
    done = process.move("big")
    in_the_way.write_text("0")
    rest = process.move("big")
    process.end()
    return {"done": done, "rest": rest}


class Acting(MovePages):
    """The system call, with an act after the call that moves the first pages."""

    act: ClassVar[list[Callable[[], None]]] = []

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Move pages, then act."""
        statuses = super().move(pid, addresses, node)
        if list(addresses) != [NOWHERE] and self.act:
            self.act.pop()()
        return statuses


def move_and(process: Process, act: Callable[[], None]) -> Document:
    """Move the region `big` in small steps; act after the first."""
    Acting.act = [act]
    with mock.patch.object(command, "MovePages", Acting):
        done = process.move("big", "--stall-limit", "1")
    assert not Acting.act
    return done


def interrupted() -> Document:
    """Send SIGINT during the move."""
    process = Process("big")
    done = move_and(process, lambda: os.kill(os.getpid(), signal.SIGINT))
    rest = process.move("big")
    process.end()
    return {"done": done, "rest": rest}


def ends() -> Document:
    """Let the process end during the move."""
    process = Process("big")
    return {"done": move_and(process, process.end)}


def cpuset() -> Document:
    """Move a process that may not use the destination."""
    top = Path("/sys/fs/cgroup")
    (top / "cgroup.subtree_control").write_text("+cpuset")
    group = top / "caf\u00e9"
    group.mkdir()
    (group / "cpuset.mems").write_text("0")
    process = Process("anonymous")
    (group / "cgroup.procs").write_text(process.pid)
    refused = process.move("anonymous")
    (group / "cpuset.mems").write_text("0-1")
    done = tool("move", "--cgroup", "caf\u00e9", *WAY)
    process.end()
    return {"refused": refused, "done": done}


class Pair:
    """A hot process on node 0, and a cold one with known content on node 1."""

    names = ("content", "content huge")

    def __init__(self) -> None:
        self.hot, self.cold = Process(*self.names), Process(*self.names)
        # Python may have begun on the other CPU. Leave no other page to exchange there.
        tool("move", "--pid", self.cold.pid, "--from", "1", "--to", "0")
        for name in self.names:
            moved = self.cold.move(name)
            assert moved["moved_pages"] == moved["pages"], moved

    def exchange(self, name: str, to: int, *words: str) -> Document:
        """Exchange a region of the hot process; look at both processes afterwards."""
        start, pages = self.hot.regions[name]
        span = f"{start:x}-{start + pages * PAGE:x}"
        partner = ("--exchange-with", self.cold.pid)
        way = ("--to", str(to), "--range", span, *partner)
        done = tool("move", "--pid", self.hot.pid, *way, *words)
        return {"done": {**done, "pages": pages}, "after": self.look(name)}

    def look(self, name: str) -> Document:
        """Count the pages of a region on each node, and the bytes that are wrong."""
        found: Document = {}
        for who, process in (("hot", self.hot), ("cold", self.cold)):
            start, pages = process.regions[name]
            addresses = range(start, start + pages * PAGE, PAGE)
            nodes = MovePages(Files()).query(int(process.pid), addresses)
            found[who] = {
                "nodes": [list(nodes).count(node) for node in (0, 1)],
                "pages": pages,
                **process.ask("verify"),
            }
        return found


def exchange() -> Document:
    """Exchange pages while the target is full, and while a rule forbids it."""
    # This reclaims memory of the node, so the pages go there afterwards.
    in_the_way = fill(1)
    pair = Pair()
    found: Document = {"before": pair.look("content")}
    pair.cold.ask("bind to 1")
    found["bound"] = pair.exchange("content", 1)
    pair.cold.ask("unbind")
    # The room that is left goes to a third process.
    third = Process("big")
    found["third"] = third.move("big")
    found["plain"] = pair.hot.move("content huge", "--dry-run")
    found["foreseen"] = pair.exchange("content", 1, "--dry-run")
    found["small"] = pair.exchange("content", 1)
    found["huge"] = pair.exchange("content huge", 1)
    in_the_way.write_text("0")
    third.end()
    top = Path("/sys/fs/cgroup")
    (top / "cgroup.subtree_control").write_text("+cpuset")
    group = top / "cold"
    group.mkdir()
    (group / "cpuset.mems").write_text("0")
    (group / "cgroup.procs").write_text(pair.cold.pid)
    found["cpuset"] = pair.exchange("content", 0)
    (top / "cgroup.procs").write_text(pair.cold.pid)
    found["back"] = pair.exchange("content", 0)
    pair.hot.end()
    pair.cold.end()
    return found


def user() -> Document:
    """Move memory as the owner of the process, without root."""
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        with os.fdopen(tell, "w") as stream:
            json.dump(as_user(), stream)
        os._exit(0)
    os.close(tell)
    with os.fdopen(ready) as stream:
        text = stream.read()
    os.waitpid(pid, 0)
    found = json.loads(text)
    assert isinstance(found, dict)
    return found


def as_user() -> Document:
    """Drop root, and move the memory of a child.

    The child runs no new program: another user may not read the files of this one.
    """
    os.sched_setaffinity(0, {0})
    os.setgroups([])
    os.setresgid(NOBODY, NOBODY, NOBODY)
    os.setresuid(NOBODY, NOBODY, NOBODY)
    # The kernel hides the files of a process that has changed its user.
    checked(libc.prctl(PR_SET_DUMPABLE, 1, 0, 0, 0), "prctl")
    ready, tell = os.pipe()
    pid = os.fork()
    if pid == 0:
        names = ("anonymous", "zero", "untouched")
        made = {name: REGIONS[name](DISK / "data") for name in names}
        os.write(tell, json.dumps(made).encode())
        time.sleep(3600)
        os._exit(0)
    regions = json.loads(os.read(ready, 4096))
    found = {name: move(str(pid), region) for name, region in regions.items()}
    found["foreign"] = tool("move", "--pid", "1", *WAY)
    found["all"] = move(str(pid), regions["anonymous"], "--all")
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return found


CASES: dict[str, Callable[[], Document]] = {
    "kinds": kinds,
    "whole": whole,
    "stall": stall,
    "full": full,
    "interrupted": interrupted,
    "ends": ends,
    "cpuset": cpuset,
    "exchange": exchange,
    "user": user,
}


def main() -> None:
    """Run the named cases."""
    # Import the command once, so that its first call is not slower than others.
    assert pageferry(["move", "--pid", "1", "--from", "0", "--to", "0"]) == 2
    prepare()
    found = {name: CASES[name]() for name in sys.argv[1:]}
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
