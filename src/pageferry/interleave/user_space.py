# SPDX-License-Identifier: GPL-2.0-only
"""One pass over a process's memory that moves each folio to its place.

The pass uses move_pages(2), and the same places as DAMON in the kernel. The size of
each step and the rate are bounded.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pageferry.errors import PageferryError, usage_error
from pageferry.interleave.memory import Folios, Memory
from pageferry.interleave.moving import UNTRIED, PageMover, Room, read_room
from pageferry.interleave.weights import Weights
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import MIB, parse_seconds, parse_size

# move_pages(2) disables the LRU caches of all CPUs for the time of a call.
STEP_BYTES = 64 * MIB
_BUSY = "busy or pinned"
_WHY = {
    errno.EACCES: "shared",
    errno.EBUSY: _BUSY,
    errno.EAGAIN: _BUSY,
    errno.EFAULT: "memory of devices or of the kernel",
    errno.ENOMEM: "no room",
}
# A busy page may be free a moment later.
_TRIES = 3
# Each walk frees memory on full nodes, for the next walk to use.
_ROUNDS = 8


@dataclass(frozen=True)
class Quota:
    """A number of bytes in a period."""

    size_bytes: int
    interval_s: float

    @property
    def bytes_per_s(self) -> float:
        """Return the rate."""
        return self.size_bytes / self.interval_s


def parse_quota(text: str) -> Quota:
    """Parse 100M/1s."""
    size, _, interval = text.partition("/")
    if not interval:
        raise usage_error("not a quota", text, "write SIZE/TIME: 100M/1s")
    quota = Quota(parse_size(size), parse_seconds(interval))
    if quota.size_bytes < 1 or quota.interval_s < 0.001:
        raise usage_error(
            "quota is too small", text, "at least one byte, and at least 1ms"
        )
    return quota


@dataclass
class Report:
    """The result of a pass, in base pages."""

    # Movable pages on each node.
    pages: Counter[int] = field(default_factory=Counter)
    moved_pages: int = 0
    # Misplaced pages that did not fit, by their full node.
    no_room: Counter[int] = field(default_factory=Counter)
    # Pages that could not move, by reason.
    unmovable: Counter[str] = field(default_factory=Counter)
    # Misplaced pages that look() found and did not move.
    left_pages: int = 0

    @property
    def total_pages(self) -> int:
        """Count the movable pages."""
        return sum(self.pages.values())


@dataclass
class _Folio:
    address: int
    order: int
    pages: int
    node: int


class Pass:
    """One pass through the memory of some processes."""

    def __init__(
        self,
        files: Files,
        mover: PageMover,
        weights: Weights,
        *,
        quota: Quota | None = None,
        keep_on: Callable[[], bool] = lambda: True,
    ) -> None:
        self.files = files
        self.mover = mover
        self.ring = weights.round()
        self.targets = weights.targets
        self.quota = quota
        self.keep_on = keep_on
        self.report = Report()
        self._begin = time.monotonic()
        self._starts: dict[int, int] = {}
        self._large = False
        step = STEP_BYTES if quota is None else min(quota.size_bytes, STEP_BYTES)
        self._step_pages = max(step // PAGE, 1)

    def look(self, pids: Sequence[int]) -> Report:
        """Count misplaced pages, and move nothing."""
        self._remember(pids)
        self._walk(pids, self._count_left)
        return self.report

    def run(self, pids: Sequence[int]) -> Report:
        """Move misplaced folios, until nothing more moves.

        Full nodes take several walks. So do large folios that Linux splits, because the
        resulting small folios have places of their own.
        """
        self._remember(pids)
        moved = 0
        for _ in range(_ROUNDS):
            self._large = False
            self.report = Report(moved_pages=moved)
            try:
                self._walk(pids, self._settle)
            except PageferryError as error:
                error.detail = self._so_far()
                raise
            done = self.report.moved_pages == moved
            if done or not (self.report.no_room or self._large):
                break
            moved = self.report.moved_pages
        return self.report

    def _remember(self, pids: Sequence[int]) -> None:
        """Remember which processes have these PIDs now: a pass may last for hours."""
        found = {pid: processes.find(self.files, pid) for pid in pids}
        self._starts = {pid: p.start_time for pid, p in found.items() if p is not None}

    def _require_same(self, pid: int) -> None:
        """Leave a newcomer alone to which the kernel has given the PID."""
        if not processes.is_alive(self.files, pid, self._starts.get(pid, -1)):
            raise processes.ended(pid, "before all of its memory was looked at")

    def _walk(
        self, pids: Sequence[int], act: Callable[[int, dict[int, list[_Folio]]], None]
    ) -> None:
        ended, alive = None, 0
        for pid in pids:
            try:
                with Memory(self.files, pid, self.targets) as memory:
                    for part in memory.folios():
                        if not self.keep_on():
                            return
                        self._require_same(pid)
                        act(pid, self._misplaced(pid, part))
                alive += 1
            except PageferryError as error:
                # Children come and go.
                if error.what != processes.ENDED:
                    raise
                ended = error
        if ended is not None and not alive:
            raise ended

    def _misplaced(self, pid: int, part: Folios) -> dict[int, list[_Folio]]:
        """Count some folios, and group the misplaced ones by their target node."""
        self.report.unmovable.update(part.left_alone)
        wanted = [self.ring[index % len(self.ring)] for index in part.indexes]
        found: dict[int, list[_Folio]] = {}
        where = self.mover.query(pid, part.addresses)
        rows = zip(part.addresses, part.orders, part.pages, where, wanted, strict=True)
        for address, order, pages, node, target in rows:
            if node < 0:
                # The page is unmapped, or is the zero page.
                continue
            self.report.pages[node] += pages
            if node != target:
                found.setdefault(target, []).append(_Folio(address, order, pages, node))
        return found

    def _count_left(self, _pid: int, misplaced: dict[int, list[_Folio]]) -> None:
        for folios in misplaced.values():
            self.report.left_pages += sum(folio.pages for folio in folios)

    def _settle(self, pid: int, misplaced: dict[int, list[_Folio]]) -> None:
        """Move misplaced folios, first to the node with the most free memory."""
        if not misplaced:
            return
        room = read_room(self.files)

        def space(node: int) -> int:
            return room[node].folios(0) if node in room else 0

        for node in sorted(misplaced, key=space, reverse=True):
            for step in self._steps(misplaced[node]):
                if not self.keep_on():
                    return
                fitting = self._fitting(step, node)
                self._move(pid, fitting, node)

    def _steps(self, folios: list[_Folio]) -> Iterable[list[_Folio]]:
        """Divide folios into steps by the bytes that one call may move."""
        step: list[_Folio] = []
        pages = 0
        for folio in folios:
            if step and pages + (1 << folio.order) > self._step_pages:
                yield step
                step, pages = [], 0
            step.append(folio)
            pages += 1 << folio.order
        if step:
            yield step

    def _fitting(self, step: list[_Folio], node: int) -> list[_Folio]:
        """Leave out folios for which the node has no room.

        Linux would split them, or reclaim other memory.
        """
        room = read_room(self.files).get(node, Room())
        if not room.zones:
            return step
        fits = {order: room.folios(order) for order in {f.order for f in step}}
        fitting: list[_Folio] = []
        used = 0
        for folio in step:
            # Round up: the used pages may touch that many blocks.
            taken = -(-used >> folio.order)
            if taken < fits[folio.order]:
                fitting.append(folio)
                used += 1 << folio.order
            else:
                self.report.no_room[node] += folio.pages
        return fitting

    def _move(self, pid: int, folios: list[_Folio], node: int) -> None:
        """Move folios, look up their nodes, and retry busy ones."""
        for _ in range(_TRIES):
            if not folios:
                return
            self._wait()
            self._require_same(pid)
            addresses = [folio.address for folio in folios]
            statuses = self.mover.move(pid, addresses, node)
            left: list[tuple[_Folio, int]] = []
            now = self.mover.query(pid, addresses)
            for folio, status, at in zip(folios, statuses, now, strict=True):
                if at == node:
                    self.report.pages[folio.node] -= folio.pages
                    self.report.pages[node] += folio.pages
                    self.report.moved_pages += folio.pages
                    self._large = self._large or folio.order > 0
                elif at >= 0:
                    left.append((folio, status))
            again = (0, UNTRIED, -errno.EBUSY, -errno.EAGAIN)
            folios = [folio for folio, status in left if status in again]
            final = [pair for pair in left if pair[1] not in again]
            self._give_up(final, node)
        self._give_up([(folio, -errno.EBUSY) for folio in folios], node)

    def _give_up(self, left: list[tuple[_Folio, int]], node: int) -> None:
        for folio, status in left:
            if status == -errno.ENOMEM:
                self.report.no_room[node] += folio.pages
                continue
            why = _WHY.get(-status, errno.errorcode.get(-status, str(status)))
            self.report.unmovable[why] += folio.pages
            # The page cannot move, so it no longer counts for its node.
            self.report.pages[folio.node] -= folio.pages

    def _wait(self) -> None:
        """Sleep until the quota covers the pages moved so far."""
        if self.quota is None:
            return
        due = self.report.moved_pages * PAGE / self.quota.bytes_per_s
        while (left := self._begin + due - time.monotonic()) > 0 and self.keep_on():
            time.sleep(min(left, 0.5))

    def _so_far(self) -> str:
        moved = self.report.moved_pages * PAGE
        return f"{moved // MIB} MiB had been moved until then"
