# SPDX-License-Identifier: GPL-2.0-only
"""One pass over a process's memory that puts each folio where it belongs.

What DAMON does in the kernel, done with move_pages(2): the same places, in steps
that are bounded in size, at a rate that is bounded in time.
"""

from __future__ import annotations

import errno
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pageferry.errors import PageferryError, usage_error
from pageferry.interleave.memory import PAGE, Folios, Memory
from pageferry.interleave.moving import UNTRIED, PageMover, Room, read_room
from pageferry.interleave.weights import Weights
from pageferry.sysfs.files import Files
from pageferry.units import MIB, parse_seconds, parse_size

# While a step runs, the system's lists of pages to come are out of use.
STEP_BYTES = 64 * MIB
_BUSY = "busy or pinned"
_WHY = {
    errno.EACCES: "shared",
    errno.EBUSY: _BUSY,
    errno.EAGAIN: _BUSY,
    errno.EFAULT: "memory of devices or of the kernel",
    errno.ENOMEM: "no room",
}
# A page that is busy now may not be so a moment later.
_TRIES = 3
# Full nodes give way to each other a little at a time.
_ROUNDS = 8


@dataclass(frozen=True)
class Quota:
    """So many bytes in so much time."""

    size_bytes: int
    interval_s: float

    @property
    def bytes_per_s(self) -> float:
        """Give the rate."""
        return self.size_bytes / self.interval_s


def parse_quota(text: str) -> Quota:
    """Read 100M/1s."""
    size, _, interval = text.partition("/")
    if not interval:
        raise usage_error("not a quota", text, "write SIZE/TIME: 100M/1s")
    quota = Quota(parse_size(size), parse_seconds(interval))
    if quota.size_bytes < 1 or quota.interval_s < 0.001:
        raise usage_error("this quota lets nothing move", text)
    return quota


@dataclass
class Report:
    """What a pass found and did. Pages are those of the MMU, not folios."""

    # On each node, of memory that can move.
    pages: Counter[int] = field(default_factory=Counter)
    moved_pages: int = 0
    # Not where they belong, by the node that is full.
    no_room: Counter[int] = field(default_factory=Counter)
    # Not where they belong, or of a kind that never moves; by reason.
    unmovable: Counter[str] = field(default_factory=Counter)
    # Out of place and not tried: of a look that moves nothing.
    left_pages: int = 0

    @property
    def total_pages(self) -> int:
        """Count the pages that can move."""
        return sum(self.pages.values())


@dataclass
class _Folio:
    address: int
    order: int
    pages: int
    node: int


class Pass:
    """One walk through the memory of some processes."""

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
        self.quota = quota
        self.keep_on = keep_on
        self.report = Report()
        self._begin = time.monotonic()
        self._large = False
        step = STEP_BYTES if quota is None else min(quota.size_bytes, STEP_BYTES)
        self._step_pages = max(step // PAGE, 1)

    def look(self, pids: Iterable[int]) -> Report:
        """Count, and move nothing."""
        self._walk(pids, self._count_left)
        return self.report

    def run(self, pids: Sequence[int]) -> Report:
        """Move what is out of place, until nothing more moves.

        That takes more than one walk where nodes were full, and where Linux has
        split large folios on their way: the pieces have places of their own.
        """
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

    def _walk(
        self, pids: Iterable[int], act: Callable[[int, dict[int, list[_Folio]]], None]
    ) -> None:
        for pid in pids:
            with Memory(self.files, pid) as memory:
                for part in memory.folios():
                    if not self.keep_on():
                        return
                    act(pid, self._misplaced(pid, part))

    def _misplaced(self, pid: int, part: Folios) -> dict[int, list[_Folio]]:
        """Count a part, and sort out what is to go where."""
        self.report.unmovable.update(part.left_alone)
        wanted = [self.ring[index % len(self.ring)] for index in part.indexes]
        found: dict[int, list[_Folio]] = {}
        where = self.mover.query(pid, part.addresses)
        rows = zip(part.addresses, part.orders, part.pages, where, wanted, strict=True)
        for address, order, pages, node, target in rows:
            if node < 0:
                # Gone, or the zero page: there is nothing to place.
                continue
            self.report.pages[node] += pages
            if node != target:
                found.setdefault(target, []).append(_Folio(address, order, pages, node))
        return found

    def _count_left(self, _pid: int, misplaced: dict[int, list[_Folio]]) -> None:
        for folios in misplaced.values():
            self.report.left_pages += sum(folio.pages for folio in folios)

    def _settle(self, pid: int, misplaced: dict[int, list[_Folio]]) -> None:
        """Move a part, first to where there is most room."""
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
        """Divide a list by the bytes that one call may move."""
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
        """Leave out what the node has no room for: it would be split, or others
        would be pushed out.
        """
        room = read_room(self.files).get(node, Room())
        if not room.zones:
            return step
        fits = {order: room.folios(order) for order in {f.order for f in step}}
        fitting: list[_Folio] = []
        used = 0
        for folio in step:
            # Rounded up: what is used may lie in as many blocks.
            taken = -(-used >> folio.order)
            if taken < fits[folio.order]:
                fitting.append(folio)
                used += 1 << folio.order
            else:
                self.report.no_room[node] += folio.pages
        return fitting

    def _move(self, pid: int, folios: list[_Folio], node: int) -> None:
        """Move, look where everything is now, and try again what is not there."""
        for _ in range(_TRIES):
            if not folios:
                return
            self._wait()
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
            # It has its share of no node: it is not among what can move.
            self.report.pages[folio.node] -= folio.pages

    def _wait(self) -> None:
        """Sleep until what was moved so far was allowed to."""
        if self.quota is None:
            return
        due = self.report.moved_pages * PAGE / self.quota.bytes_per_s
        while (left := self._begin + due - time.monotonic()) > 0 and self.keep_on():
            time.sleep(min(left, 0.5))

    def _so_far(self) -> str:
        moved = self.report.moved_pages * PAGE
        return f"{moved // MIB} MiB had been moved until then"
