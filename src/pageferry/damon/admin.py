# SPDX-License-Identifier: GPL-2.0-only
"""Start and stop our kdamonds, without changing those of other programs."""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from pageferry import output
from pageferry.damon.scheme import Write
from pageferry.errors import PageferryError
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files

T = TypeVar("T")

TOP = "/sys/kernel/mm/damon/admin/kdamonds"
# The kernel does not change the number of kdamonds while one of them runs.
SLOTS = 8
# This file has the number of kdamonds that the tool has made.
_MARK = "/run/pageferry/damon-slots"
# Kernel modules that use DAMON.
_MODULES = ("damon_reclaim", "damon_lru_sort", "damon_stat")
_COUNTERS = ("nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds")
# The kernel returns EBUSY, to reads, too, while it handles another program's request.
_BUSY = os.strerror(errno.EBUSY)
_INVALID = os.strerror(errno.EINVAL)
_DENIED = (os.strerror(errno.EACCES), os.strerror(errno.EPERM))
_STATUS = "pageferry interleave status"
# A kdamond answers no request within a turn, which may last long without a quota. On
# Linux 7.3, the one who waits for the answer locks all files.
_BUSY_TRIES = 600
_BUSY_WAIT_S = 0.1
_SAY_AFTER_TRIES = 20


@dataclass(frozen=True)
class Kdamond:
    """A kdamond as the kernel shows it."""

    slot: int
    running: bool
    # PID of the kernel thread; -1 without one.
    pid: int


class Admin:
    """The directory of all kdamonds. The tool knows its own by slot and thread."""

    def __init__(self, files: Files, ours: Mapping[int, int | None]) -> None:
        """ours: the thread of each slot that this tool has started, if known."""
        self.files = files
        self.ours = ours

    def is_present(self) -> bool:
        """Say whether this kernel has DAMON and its sysfs files."""
        return self.files.exists(f"{TOP}/nr_kdamonds")

    def kdamonds(self, *, wait: bool = True) -> list[Kdamond]:
        """Read the state of all kdamonds; without `wait`, a busy one looks stopped."""
        found = []
        for slot in range(int(self._read("nr_kdamonds", "0", wait=wait))):
            state = self._read(f"{slot}/state", "off", wait=wait)
            thread = self._read(f"{slot}/pid", "-1", wait=wait)
            # It may stop by itself between the two reads.
            running = state == "on" and thread != "-1"
            found.append(Kdamond(slot, running, int(thread)))
        return found

    def is_ours(self, kdamond: Kdamond) -> bool:
        """Say whether this tool has started the running kdamond."""
        if not kdamond.running or kdamond.slot not in self.ours:
            return False
        thread = self.ours[kdamond.slot]
        if thread is None:
            # A command of ours was killed at the start of a kdamond. Another program
            # that used the slot since then has made its own directories.
            return self._made_by_us()
        return thread == kdamond.pid

    def _made_by_us(self) -> bool:
        """Say whether the directories are as many as the tool has made."""
        return self.files.read_if_there(_MARK) == str(len(self.kdamonds()))

    def others(self) -> str | None:
        """Name another running user of DAMON; None if there is none."""
        for kdamond in self.kdamonds():
            if kdamond.running and not self.is_ours(kdamond):
                return f"kdamond {kdamond.slot} (thread {kdamond.pid}) is running"
        for module in _MODULES:
            switch = f"/sys/module/{module}/parameters/enabled"
            if self.files.read_or(switch, "N") == "Y":
                return f"{module.upper()} is enabled ({self.files.path(switch)})"
        monitor = "/sys/kernel/debug/damon/monitor_on_DEPRECATED"
        if self.files.read_or(monitor, "off") == "on":
            return "a program uses DAMON by debugfs"
        return None

    def require_alone(self, otherwise: str) -> None:
        """Raise an error if another program uses DAMON."""
        other = self.others()
        if other is not None:
            raise PageferryError(
                "another user of DAMON is running, and is left alone",
                value=other,
                hint=otherwise,
            )

    def make_room(self, *, takeover: bool) -> None:
        """Remove a configuration that is not running, if it is ours or --takeover."""
        self.clear_up()
        found = self.kdamonds()
        if not found or any(kdamond.running for kdamond in found):
            return
        if not takeover:
            raise PageferryError(
                "another program has configured DAMON without running it",
                value=f"{TOP}/nr_kdamonds is {len(found)}",
                reason="a start would remove it",
                hint="--takeover, if it is no longer needed; --by user does without DAMON",
            )
        self.write("nr_kdamonds", "0")

    def make_slots(self) -> None:
        """Make directories for kdamonds unless there are some."""
        if self.kdamonds():
            return
        self._make(SLOTS)

    def _make(self, count: int) -> None:
        """Make directories. The mark comes first: a later command clears up then."""
        if not self.files.dry_run:
            mark = self.files.path(_MARK)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(f"{count}\n")
        self.write("nr_kdamonds", str(count))

    def free_slot(self) -> int:
        """Return the slot of a kdamond that is not running."""
        for kdamond in self.kdamonds():
            if not kdamond.running:
                return kdamond.slot
        raise PageferryError(
            "no kdamond is free",
            value=str(len(self.kdamonds())),
            hint="pageferry interleave stop --pid N",
        )

    def has_dests(self) -> bool | None:
        """Say whether a scheme can have several destinations; None if unknown."""
        found = self.probe(("dests/nr_dests",))
        return None if found is None else bool(found)

    def probe(self, names: Sequence[str]) -> set[str] | None:
        """Return which of these files a scheme has; None if unknown.

        The kernel shows the files only below a scheme. The tool therefore makes one
        for a moment, unless there are kdamonds or this is a dry run.
        """
        found = self.kdamonds()
        for kdamond in found:
            scheme = f"{TOP}/{kdamond.slot}/contexts/0/schemes/0"
            if self.files.exists(scheme):
                return {n for n in names if self.files.exists(f"{scheme}/{n}")}
        if found or self.files.dry_run:
            return None
        try:
            self._make(1)
            self.write("0/contexts/nr_contexts", "1")
            known = self.files.read_or(f"{TOP}/0/contexts/0/avail_operations", "")
            self.write("0/contexts/0/schemes/nr_schemes", "1")
            scheme = "0/contexts/0/schemes/0"
            self.write(f"{scheme}/quotas/goals/nr_goals", "1")
            here = {n for n in names if self.files.exists(f"{TOP}/{scheme}/{n}")}
            return here if "vaddr" in known.split() else here - {"dests/nr_dests"}
        finally:
            self.clear_up()

    def for_living(
        self, pids: Sequence[int], act: Callable[[tuple[int, ...]], T]
    ) -> tuple[T, tuple[int, ...]]:
        """Start or commit for some processes; returns the result, and who is left.

        The kernel refuses a whole start if one process has ended since the list was
        made. A stock kernel refuses a commit, too.
        """
        living = tuple(pids)
        while True:
            try:
                return act(living), living
            except PageferryError as error:
                found = {pid: processes.find(self.files, pid) for pid in living}
                left = tuple(pid for pid, p in found.items() if p and not p.ended)
                if error.reason != _INVALID or left == living:
                    raise
                if not left:
                    raise processes.ended(living[0], "before DAMON knew it") from error
            living = left

    def start(self, slot: int, writes: Sequence[Write]) -> int:
        """Configure and start a kdamond; returns its thread."""
        self.write_all(slot, writes)
        self.write(f"{slot}/state", "on")
        if self.files.dry_run:
            return -1
        # The new kdamond takes the lock of these files now and then.
        state = self._read(f"{slot}/state", "off", wait=True)
        thread = int(self._read(f"{slot}/pid", "-1", wait=True))
        if state != "on" or thread == -1:
            raise PageferryError(
                "DAMON stopped immediately",
                value=self.files.path(f"{TOP}/{slot}/state"),
                reason="the processes may have ended",
            )
        return thread

    def commit(
        self, slot: int, writes: Sequence[Write], command: str = "commit"
    ) -> None:
        """Change a running kdamond."""
        self.write_all(slot, writes)
        self.write(f"{slot}/state", command)

    def stop(self, slot: int) -> None:
        """Stop one of our kdamonds, and remove the directories after the last one."""
        here = {kdamond.slot: kdamond for kdamond in self.kdamonds()}
        if slot in here and (self.is_ours(here[slot]) or self.files.dry_run):
            self._tell(slot, "off")
        self.clear_up()

    def clear_up(self) -> None:
        """Remove the directories that this tool has made, if no kdamond runs."""
        mark = self.files.path(_MARK)
        found = self.kdamonds()
        if not mark.exists() or any(kdamond.running for kdamond in found):
            return
        # Another number of kdamonds is another program's configuration.
        if self._made_by_us():
            self.write("nr_kdamonds", "0")
        if not self.files.dry_run:
            mark.unlink()

    def update_stats(self, slot: int) -> bool:
        """Make the kernel update the statistics of a kdamond; False if it is busy."""
        try:
            if self._is_on(slot):
                self._tell(slot, "update_schemes_stats")
        except PageferryError as error:
            if error.reason != _BUSY:
                raise
            return False
        return True

    def stats(
        self, slot: int, scheme: int = 0, *, fresh: bool = True
    ) -> dict[str, int]:
        """Read the statistics of a scheme; `fresh`: first make the kernel update all."""
        if fresh:
            # Those of the last update must do if it is busy.
            self.update_stats(slot)
        top = f"{TOP}/{slot}/contexts/0/schemes/{scheme}/stats"
        return {
            name: int(self.files.read_or(f"{top}/{name}", "0") or 0)
            for name in _COUNTERS
        }

    def _is_on(self, slot: int) -> bool:
        return self._read(f"{slot}/state", "off", wait=True) == "on"

    def _tell(self, slot: int, command: str) -> None:
        """Give a kdamond a command that means nothing once the kdamond has stopped.

        Without a process to watch, it stops by itself between any two accesses.
        """
        try:
            self.write(f"{slot}/state", command)
        except PageferryError as error:
            if error.reason == _BUSY or self._is_on(slot):
                raise

    def write_all(self, slot: int, writes: Sequence[Write]) -> None:
        """Write files of one kdamond, in order."""
        for name, value in writes:
            self.write(f"{slot}/{name}", value)

    def _read(self, name: str, default: str, *, wait: bool) -> str:
        """Read one file that may be missing, and retry while the kernel is busy.

        Only root may read the files. To others the kdamonds look stopped.
        """
        tries = _BUSY_TRIES if wait else 1
        path = f"{TOP}/{name}"
        try:
            return _patiently(lambda: self.files.read_if_there(path), tries) or default
        except PageferryError as error:
            if not wait or error.reason in _DENIED:
                return default
            raise

    def write(self, name: str, value: str) -> None:
        """Write one file, and retry while the kernel is busy."""

        def once() -> None:
            try:
                self.files.write(f"{TOP}/{name}", value)
            except PageferryError as error:
                if error.reason == _BUSY:
                    # The log lists a repeated write once.
                    self.files.writes.pop()
                raise

        _patiently(once)


def _patiently(access: Callable[[], T], tries: int = _BUSY_TRIES) -> T:
    """Repeat an access while the kernel is busy."""
    left = tries
    while True:
        left -= 1
        try:
            return access()
        except PageferryError as error:
            if not left or error.reason != _BUSY:
                error.hint = _STATUS
                raise
        if tries - left == _SAY_AFTER_TRIES:
            output.talk("DAMON is busy: waiting for a minute at most")
        time.sleep(_BUSY_WAIT_S)
