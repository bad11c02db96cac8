# SPDX-License-Identifier: GPL-2.0-only
"""Moves the pages of a process in steps, and finds a reason for each that stays."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

from pageferry.errors import PageferryError
from pageferry.interleave.moving import UNTRIED, PageMover
from pageferry.move import scan
from pageferry.move.account import Account, Reason
from pageferry.move.holders import Holders, read_holders
from pageferry.move.rooms import Rooms
from pageferry.move.scan import Part, Scanner, Units
from pageferry.move.steps import Sizer
from pageferry.move.targets import routes
from pageferry.sysfs import pagebits, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.sysfs.processes import Process

# A busy page may be free a moment later.
_TRIES = 3
# Pages under writeback get this time, for all pages of a part together.
_WRITE_WAITS = 10
_WRITE_WAIT_S = 0.05
# No mapping is at this address. A call for it takes the time of the fixed part.
NOWHERE = (1 << 64) - PAGE
_MEASURES = 3
# mm/migrate.c of Linux: do_pages_move() and __add_folio_for_migration().
_BY_STATUS = {
    -errno.EACCES: Reason.SHARED,
    -errno.ENOMEM: Reason.NO_ROOM,
}
# ENOENT: the process freed the page, and got another one at its address since.
_AGAIN = (0, UNTRIED, -errno.EBUSY, -errno.EAGAIN, -errno.ENOENT)


@dataclass(frozen=True)
class Request:
    """The options of a move."""

    sources: tuple[int, ...]
    targets: tuple[int, ...]
    limit_s: float
    shared: bool = False
    dry_run: bool = False
    span: tuple[int, int] | None = None

    @cached_property
    def routes(self) -> dict[int, int]:
        """Map each node whose memory moves to its destination."""
        return routes(self.sources, self.targets)

    def order_of_targets(self, node: int) -> list[int]:
        """List the destinations for pages of a node, the best one first.

        The others follow for the case that it is full.
        """
        first = self.targets.index(self.routes[node])
        order = (*self.targets[first:], *self.targets[:first])
        return [target for target in order if target != node]


@dataclass(slots=True)
class Unit:
    """A page or folio of a process."""

    address: int
    pages: int
    node: int
    mark: int


class Mover:
    """Moves the memory of processes, and keeps the account."""

    def __init__(
        self,
        files: Files,
        mover: PageMover,
        request: Request,
        *,
        keep_on: Callable[[], bool] = lambda: True,
        progress: Callable[[int], None] = lambda _pages: None,
    ) -> None:
        self.files = files
        self.mover = mover
        self.request = request
        self.keep_on = keep_on
        self.progress = progress
        self.account = Account()
        # Pages of different kinds take different times.
        self._sizers: dict[str, Sizer] = {}
        self._rooms = Rooms(files)
        self._holders: Holders | None = None
        self._fixed_s: float | None = None
        self._scanner: Scanner

    def run(self, process: Process) -> None:
        """Move the memory of one process; raises after the account is complete."""
        begin = time.monotonic()
        self.account.processes += 1
        # After a complete run each page has an outcome, and a page without one is an
        # error of ours that the figures must show.
        rest: Reason | None = None
        try:
            with Scanner(self.files, process.pid, self.request.span) as scanner:
                self._scanner = scanner
                for part in scanner.parts():
                    if not self.keep_on():
                        break
                    self._part(process, part)
                    self.progress(part.present())
                if not scanner.sees_frames:
                    self.account.sees_frames = False
        except PageferryError as error:
            if error.what != processes.ENDED and self._lives(process):
                rest = Reason.NOT_ALLOWED
                raise
            rest = Reason.GONE
            self.account.ended_processes += 1
        finally:
            if not self.keep_on():
                rest = rest or Reason.NOT_TRIED
            if rest is not None:
                self.account.close(rest)
            self.account.interrupted = not self.keep_on()
            self.account.elapsed_s += time.monotonic() - begin

    def _lives(self, process: Process) -> bool:
        """Say whether this number still names the same process."""
        return processes.is_alive(self.files, process.pid, process.start_time)

    def _part(self, process: Process, part: Part) -> None:
        pid, account = process.pid, self.account
        account.found.update(part.found())
        for (kind, reason), pages in part.stayed.items():
            account.stay(kind, reason, pages, (pid, part.examples[reason]))
        # A holder may have come or gone since the part before.
        self._holders = None
        self._rooms.refresh()
        late: list[tuple[str, list[Unit]]] = []
        for kind in sorted(part.units):
            ready, written = self._choose(process, kind, part.units[kind])
            self._settle(process, kind, ready)
            if written:
                late.append((kind, written))
        if late:
            self._settle_late(process, late)

    def _choose(
        self, process: Process, kind: str, units: Units
    ) -> tuple[list[Unit], list[Unit]]:
        """Find the pages to move: those that are ready, and those under writeback."""
        self._require(process)
        where = self.mover.query(process.pid, units.addresses)
        ready: list[Unit] = []
        written: list[Unit] = []
        moving, targets = self.request.routes, self.request.targets
        rows = zip(units.addresses, units.pages, units.marks, where, strict=True)
        for address, pages, mark, node in rows:
            unit = Unit(address, pages, node, mark)
            reason = None
            if node < 0:
                reason = self._why_no_node(unit)
            elif node not in moving:
                reason = Reason.THERE if node in targets else Reason.ELSEWHERE
            elif mark & scan.IS_SECRET:
                reason = Reason.UNEVICTABLE
            elif self._is_shared(pages, mark):
                reason = Reason.SHARED
            if reason is not None:
                self._stay(process.pid, kind, unit, reason)
            elif mark & scan.IS_WRITTEN:
                written.append(unit)
            else:
                ready.append(unit)
        return ready, written

    def _is_shared(self, pages: int, mark: int) -> bool:
        # For a large folio the kernel decides by more than its first page.
        return pages == 1 and not mark & scan.MAPPED_ONCE and not self.request.shared

    def _why_no_node(self, unit: Unit) -> Reason:
        """Tell a freed page from the zero page and from memory of a driver.

        Memory of a device has -EFAULT, too, on some kernels. Without root no flag tells
        the two, but a mapping of a file, such as /dev/mem, has no zero page.
        """
        entry = self._scanner.entries([unit.address])[0]
        if not entry & pagebits.PRESENT:
            return Reason.NOT_PRESENT if entry & pagebits.SWAPPED else Reason.GONE
        is_zero = unit.node == -errno.EFAULT and not unit.mark & scan.IN_FILE
        return Reason.ZERO_PAGE if is_zero else Reason.KERNEL

    def _settle(self, process: Process, kind: str, units: list[Unit]) -> None:
        """Find a destination for each page, and move the pages there in steps."""
        groups: dict[int, list[Unit]] = {}
        orders = {n: self.request.order_of_targets(n) for n in self.request.routes}
        for unit in units:
            reason = None
            for target in orders[unit.node]:
                reason = self._rooms.take(target, unit.pages, kind)
                if reason is None:
                    groups.setdefault(target, []).append(unit)
                    break
            if reason is not None:
                self._stay(process.pid, kind, unit, reason)
        sizer = self._sizers.setdefault(kind, Sizer(self.request.limit_s))
        for target, group in groups.items():
            at = 0
            while at < len(group) and self.keep_on():
                step = _next_step(group, at, sizer.pages)
                at += len(step)
                if self.request.dry_run:
                    self._foresee(process.pid, kind, step)
                else:
                    self._step(process, kind, step, target)

    def _foresee(self, pid: int, kind: str, step: list[Unit]) -> None:
        """Count pages that would move, except those that have a known holder."""
        holders = self._read_holders(pid)
        for unit in step:
            holder = holders.of(unit.address, unit.pages) if holders.ranges else None
            if holder is None:
                self.account.movable[kind] += unit.pages
            else:
                self.account.pinned_by[holder] += unit.pages
                self._stay(pid, kind, unit, Reason.PINNED)

    def _settle_late(
        self, process: Process, late: list[tuple[str, list[Unit]]]
    ) -> None:
        """Wait a little for pages under writeback, then move the written ones."""
        for _ in range(_WRITE_WAITS):
            if self.request.dry_run or not self.keep_on():
                break
            if not any(self._still_written(units) for _, units in late):
                break
            time.sleep(_WRITE_WAIT_S)
        for kind, units in late:
            still = self._still_written(units)
            for unit in units:
                if unit.address in still:
                    self._stay(process.pid, kind, unit, Reason.WRITEBACK)
            ready = [unit for unit in units if unit.address not in still]
            self._settle(process, kind, ready)

    def _still_written(self, units: list[Unit]) -> set[int]:
        flags = self._scanner.flags([unit.address for unit in units])
        return {
            u.address for u, f in zip(units, flags, strict=True) if f & pagebits.WRITING
        }

    def _step(self, process: Process, kind: str, step: list[Unit], target: int) -> None:
        """Move pages, look up their nodes, and retry busy ones.

        When a page cannot move, the kernel may end the call before the pages behind it.
        So a call that settles a page is followed by another one.
        """
        tries = _TRIES
        sizer, limit_s = self._sizers[kind], self.request.limit_s
        fixed_s = self._fixed_part(process, target)
        while step and tries and self.keep_on():
            self._require(process)
            addresses = [unit.address for unit in step]
            pages = sum(unit.pages for unit in step)
            begin = time.monotonic()
            statuses = self.mover.move(process.pid, addresses, target)
            took_s = max(time.monotonic() - begin - fixed_s, 0.0)
            sizer.learn(pages, took_s)
            self.account.steps.add(pages, took_s, limit_s)
            left = self._sort_out(process.pid, kind, step, statuses, target)
            tries = tries - 1 if len(left) == len(step) else tries
            step = left
        if step and self.keep_on():
            self._explain(process.pid, kind, step)

    def _fixed_part(self, process: Process, target: int) -> float:
        """Measure the part of a call that does not depend on its pages, once."""
        if self._fixed_s is None:
            times = []
            for _ in range(_MEASURES):
                self._require(process)
                begin = time.monotonic()
                self.mover.move(process.pid, [NOWHERE], target)
                times.append(time.monotonic() - begin)
            # Other work makes a call longer, and would hide a stall.
            self._fixed_s = self.account.steps.fixed_s = min(times)
        return self._fixed_s

    def _sort_out(
        self,
        pid: int,
        kind: str,
        step: list[Unit],
        statuses: Sequence[int],
        target: int,
    ) -> list[Unit]:
        """Account for the pages of a call; returns those to try again."""
        left = []
        now = self.mover.query(pid, [unit.address for unit in step])
        for unit, status, node in zip(step, statuses, now, strict=True):
            if node == target and not self._is_split(kind, unit):
                self.account.moved[kind] += unit.pages
            elif node == target:
                # Only its first page moved.
                left += [
                    Unit(unit.address + at * PAGE, 1, unit.node, unit.mark)
                    for at in range(unit.pages)
                ]
            elif node < 0:
                unit.node = node
                self._stay(pid, kind, unit, self._why_no_node(unit))
            elif status in _BY_STATUS:
                reason = _BY_STATUS[status]
                if reason is Reason.NO_ROOM and unit.pages > 1:
                    reason = Reason.NO_LARGE_ROOM
                self._stay(pid, kind, unit, reason)
            elif status in _AGAIN:
                left.append(unit)
            else:
                self._explain(pid, kind, [unit], Reason.KERNEL)
        return left

    def _is_split(self, kind: str, unit: Unit) -> bool:
        """Say whether the kernel split a large folio after the scan."""
        if unit.pages == 1 or kind == "hugetlb":
            return False
        last = unit.address + (unit.pages - 1) * PAGE
        entries = self._scanner.entries([unit.address, last])
        first_pfn, last_pfn = (entry & pagebits.PFN for entry in entries)
        return last_pfn - first_pfn != unit.pages - 1

    def _explain(
        self, pid: int, kind: str, units: list[Unit], last: Reason = Reason.PINNED
    ) -> None:
        """Find a reason for pages that the kernel did not move."""
        holders = self._read_holders(pid)
        flags = self._scanner.flags([unit.address for unit in units])
        for unit, flag in zip(units, flags, strict=True):
            holder = holders.of(unit.address, unit.pages)
            reason = last
            if flag & pagebits.POISONED:
                reason = Reason.POISONED
            elif flag & pagebits.WRITING:
                reason = Reason.WRITEBACK
            elif holder is not None:
                self.account.pinned_by[holder] += unit.pages
                reason = Reason.PINNED
            elif flag and not flag & (pagebits.LRU | pagebits.HUGETLB):
                # Pages of drivers are on no list of the kernel; others come back to it.
                reason = Reason.PINNED if flag & pagebits.ANON else Reason.KERNEL
            elif pagebits.is_secret(flag):
                reason = Reason.UNEVICTABLE
            if reason is Reason.PINNED and holder is None:
                self.account.suspects.update(holders.suspects)
            self._stay(pid, kind, unit, reason)

    def _stay(self, pid: int, kind: str, unit: Unit, reason: Reason) -> None:
        self.account.stay(kind, reason, unit.pages, (pid, unit.address))

    def _require(self, process: Process) -> None:
        """Make sure that this number still names the same process."""
        if not self._lives(process):
            raise processes.ended(process.pid, "its memory is freed")

    def _read_holders(self, pid: int) -> Holders:
        if self._holders is None:
            self._holders = read_holders(self.files, pid)
        return self._holders


def _next_step(group: Sequence[Unit], at: int, most_pages: int) -> list[Unit]:
    """Take pages up to a number, but at least one page or folio."""
    stop, pages = at + 1, group[at].pages
    while stop < len(group) and pages + group[stop].pages <= most_pages:
        pages += group[stop].pages
        stop += 1
    return list(group[at:stop])
