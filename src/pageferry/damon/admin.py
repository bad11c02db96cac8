# SPDX-License-Identifier: GPL-2.0-only
"""Turning kdamonds on and off, and leaving alone those of others."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass

from pageferry.damon.scheme import Scheme, Write, start_writes
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files

TOP = "/sys/kernel/mm/damon/admin/kdamonds"
# All at once: their number cannot change while one of them runs.
SLOTS = 8
# Says that this tool has made them.
_MARK = "/run/pageferry/damon-slots"
# Modules of the kernel that use DAMON by themselves, and their switches.
_MODULES = ("damon_reclaim", "damon_lru_sort", "damon_stat")
_COUNTERS = ("nr_tried", "sz_tried", "nr_applied", "sz_applied", "qt_exceeds")
# The kernel answers EBUSY while it does what somebody else has asked for.
_BUSY_TRIES = 20
_BUSY_WAIT_S = 0.1


@dataclass(frozen=True)
class Kdamond:
    """A kdamond as the kernel shows it."""

    slot: int
    running: bool
    # Of the kernel thread; -1 when there is none.
    pid: int


class Admin:
    """The directory of all kdamonds. Ours are known by slot and thread."""

    def __init__(self, files: Files, ours: Mapping[int, int]) -> None:
        """Ours: the thread of each slot that this tool has started."""
        self.files = files
        self.ours = ours

    def is_present(self) -> bool:
        """Say whether this kernel has DAMON, with these files."""
        return self.files.exists(f"{TOP}/nr_kdamonds")

    def kdamonds(self) -> list[Kdamond]:
        """Read what there is."""
        found = []
        for slot in range(int(self.files.read_or(f"{TOP}/nr_kdamonds", "0") or 0)):
            state = self.files.read_or(f"{TOP}/{slot}/state", "off")
            thread = self.files.read_or(f"{TOP}/{slot}/pid", "-1")
            found.append(Kdamond(slot, state == "on", int(thread)))
        return found

    def is_ours(self, kdamond: Kdamond) -> bool:
        """Say whether this tool has started it, and nobody else since."""
        return kdamond.running and self.ours.get(kdamond.slot) == kdamond.pid

    def others(self) -> str | None:
        """Say who else uses DAMON right now; None when nobody does."""
        for kdamond in self.kdamonds():
            if kdamond.running and not self.is_ours(kdamond):
                return f"kdamond {kdamond.slot} (thread {kdamond.pid}) is running"
        for module in _MODULES:
            switch = f"/sys/module/{module}/parameters/enabled"
            if self.files.read_or(switch, "N") == "Y":
                return f"{module.upper()} is enabled ({self.files.path(switch)})"
        monitor = "/sys/kernel/debug/damon/monitor_on_DEPRECATED"
        if self.files.read_or(monitor, "off") == "on":
            return "somebody uses DAMON by debugfs"
        return None

    def require_alone(self, otherwise: str) -> None:
        """Refuse politely where somebody else is at work."""
        other = self.others()
        if other is not None:
            raise PageferryError(
                "somebody else is using DAMON, and is left alone",
                value=other,
                hint=otherwise,
            )

    def make_room(self, *, takeover: bool) -> None:
        """Take away what is set up without running, if that is ours, or allowed."""
        self.clear_up()
        found = self.kdamonds()
        if not found or any(kdamond.running for kdamond in found):
            return
        if not takeover:
            raise PageferryError(
                "somebody has set DAMON up, without running it",
                value=f"{TOP}/nr_kdamonds is {len(found)}",
                reason="starting would throw that away",
                hint="--takeover, if it is no longer needed; --by user does without DAMON",
            )
        self.write("nr_kdamonds", "0")

    def make_slots(self) -> None:
        """Make directories for kdamonds where there are none."""
        if self.kdamonds():
            return
        self.write("nr_kdamonds", str(SLOTS))
        if not self.files.dry_run:
            mark = self.files.path(_MARK)
            mark.parent.mkdir(parents=True, exist_ok=True)
            mark.write_text(f"{SLOTS}\n")

    def free_slot(self) -> int:
        """Find a kdamond that does not run."""
        for kdamond in self.kdamonds():
            if not kdamond.running:
                return kdamond.slot
        raise PageferryError(
            "no kdamond is free",
            value=str(len(self.kdamonds())),
            hint="pageferry interleave stop --pid N",
        )

    def has_dests(self) -> bool | None:
        """Find out whether a scheme can have several destinations.

        The files are there only below a scheme, so one is made for a moment; None
        where that may not be.
        """
        found = self.kdamonds()
        for kdamond in found:
            scheme = f"{TOP}/{kdamond.slot}/contexts/0/schemes/0"
            if self.files.exists(scheme):
                return self.files.exists(f"{scheme}/dests/nr_dests")
        if found or self.files.dry_run:
            return None
        try:
            self.write("nr_kdamonds", "1")
            self.write("0/contexts/nr_contexts", "1")
            known = self.files.read_or(f"{TOP}/0/contexts/0/avail_operations", "")
            self.write("0/contexts/0/schemes/nr_schemes", "1")
            dests = f"{TOP}/0/contexts/0/schemes/0/dests/nr_dests"
            return self.files.exists(dests) and "vaddr" in known.split()
        finally:
            self.write("nr_kdamonds", "0")

    def start(self, slot: int, scheme: Scheme) -> int:
        """Set a kdamond up and turn it on; gives its thread."""
        self.write_all(slot, start_writes(scheme))
        self.write(f"{slot}/state", "on")
        if self.files.dry_run:
            return -1
        state = self.files.read(f"{TOP}/{slot}/state")
        thread = int(self.files.read(f"{TOP}/{slot}/pid"))
        if state != "on":
            raise PageferryError(
                "DAMON stopped again at once",
                value=self.files.path(f"{TOP}/{slot}/state"),
                reason="the processes may have ended",
            )
        return thread

    def commit(self, slot: int, writes: list[Write]) -> None:
        """Change a kdamond that runs."""
        self.write_all(slot, writes)
        self.write(f"{slot}/state", "commit")

    def stop(self, slot: int) -> None:
        """Turn one of ours off, and clear up after the last of them."""
        here = {kdamond.slot: kdamond for kdamond in self.kdamonds()}
        if slot in here and (self.is_ours(here[slot]) or self.files.dry_run):
            self.write(f"{slot}/state", "off")
        self.clear_up()

    def clear_up(self) -> None:
        """Take the directories away that this tool has made, if nobody runs."""
        mark = self.files.path(_MARK)
        found = self.kdamonds()
        if not mark.exists() or any(kdamond.running for kdamond in found):
            return
        # Who has set up another number of them since will want to keep it.
        if len(found) == SLOTS:
            self.write("nr_kdamonds", "0")
        if not self.files.dry_run:
            mark.unlink()

    def stats(self, slot: int) -> dict[str, int]:
        """Let the kernel bring its statistics up to date, and read them."""
        here = {kdamond.slot: kdamond for kdamond in self.kdamonds()}
        if slot in here and here[slot].running:
            self.write(f"{slot}/state", "update_schemes_stats")
        top = f"{TOP}/{slot}/contexts/0/schemes/0/stats"
        return {
            name: int(self.files.read_or(f"{top}/{name}", "0") or 0)
            for name in _COUNTERS
        }

    def write_all(self, slot: int, writes: list[Write]) -> None:
        """Write below one kdamond, in order."""
        for name, value in writes:
            self.write(f"{slot}/{name}", value)

    def write(self, name: str, value: str) -> None:
        """Write one file, and wait while the kernel has its hands full."""
        for left in reversed(range(_BUSY_TRIES)):
            try:
                self.files.write(f"{TOP}/{name}", value)
                return
            except PageferryError as error:
                if not left or error.reason != "Device or resource busy":
                    error.hint = "pageferry interleave status"
                    raise
                # One write, tried again, is one write.
                self.files.writes.pop()
            time.sleep(_BUSY_WAIT_S)
