# SPDX-License-Identifier: GPL-2.0-only
"""Exchanges pages of a hot process with pages of a cold one, without a free page.

The kernel's file takes the page frames of two folios of one size. It checks neither
cpusets nor memory policies, so this module does.
"""

from __future__ import annotations

import bisect
import errno
import time
from collections import deque
from collections.abc import Callable, Collection, Iterator, Sequence

from pageferry.errors import PageferryError
from pageferry.interleave import placement
from pageferry.interleave.memory import not_allowed
from pageferry.interleave.moving import EHWPOISON, ExchangeFile, PageMover
from pageferry.move import targets
from pageferry.move.account import Reason
from pageferry.move.mover import Mover, Request, Unit
from pageferry.move.scan import Part, Scanner, Units
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import Process

# The kernel itself empties the lists of all CPUs, and tries again.
_TRIES = 3
_PAUSE_S = 0.001
# If a page cannot change places with this many others, they are not the cause.
_PARTNERS = 2
# Documentation/ABI/testing/debugfs-migrate_exchange
_AGAIN = (errno.EAGAIN, errno.EBUSY)
_BY_ERROR = {
    errno.EAGAIN: Reason.PINNED,
    errno.EBUSY: Reason.PINNED,
    EHWPOISON: Reason.POISONED,
    errno.EINVAL: Reason.UNFIT,
    errno.ENXIO: Reason.KERNEL,
    errno.EOPNOTSUPP: Reason.UNFIT,
}
Policies = list[tuple[int, frozenset[int] | None]]


class _StaysError(Exception):
    """A page of one process cannot change places, whatever the other one is."""

    def __init__(self, pid: int, reason: Reason) -> None:
        super().__init__(reason)
        self.pid, self.reason = pid, reason


class Exchanger(Mover):
    """Exchanges pages of two processes, and keeps the account of the hot one."""

    def __init__(
        self,
        files: Files,
        mover: PageMover,
        request: Request,
        cold: Process,
        device: ExchangeFile | None,
        *,
        keep_on: Callable[[], bool] = lambda: True,
        progress: Callable[[int], None] = lambda _pages: None,
    ) -> None:
        """Take the file of the kernel as the device; None in a dry run."""
        super().__init__(files, mover, request, keep_on=keep_on, progress=progress)
        self.cold, self.device = cold, device
        self.account.partner = cold
        self._policies: dict[int, Policies] = {}
        # Cold pages and those to try once more, by size and by the node to go to.
        self._found: dict[tuple[int, int], Iterator[int]] = {}
        self._back: dict[tuple[int, int], deque[int]] = {}
        # Sizes and nodes for which a rule of the cold process refused a page.
        self._refused: set[tuple[int, int]] = set()
        # In a dry run no page moves, so a cold page would count for each node.
        self._taken: set[int] = set()
        self._theirs: Scanner

    def run(self, process: Process) -> None:
        """Exchange the memory of one process; raises as for a move."""
        with Scanner(self.files, self.cold.pid) as self._theirs:
            for owner in (process, self.cold):
                self._require(owner)
                policies = placement.policies(self.files, owner.pid)
                self._policies[owner.pid] = policies
            super().run(process)
        if self.account.reasons()[Reason.NO_PARTNER] and not self._lives(self.cold):
            raise processes.ended(self.cold.pid, "its memory is freed")

    def _part(self, process: Process, part: Part) -> None:
        self._require_frames(self._scanner)
        # The cpuset may have changed since the part before.
        targets.require_allowed(self.files, [process], self.request.targets, own=False)
        super()._part(process, part)

    def _require_frames(self, scanner: Scanner) -> None:
        if not scanner.sees_frames:
            raise not_allowed(self.files.path("/proc/kpageflags"))

    def _choose(
        self, process: Process, kind: str, units: Units
    ) -> tuple[list[Unit], list[Unit]]:
        if kind.startswith("anonymous"):
            return super()._choose(process, kind, units)
        where = (process.pid, units.addresses[0])
        self.account.stay(kind, Reason.NOT_ANONYMOUS, sum(units.pages), where)
        return [], []

    def _settle(self, process: Process, kind: str, units: list[Unit]) -> None:
        """Give each page the place of a cold one."""
        for unit in units:
            if not self.keep_on():
                return
            reason = self._exchange(process, kind, unit)
            if reason is Reason.PINNED:
                self._explain(process.pid, kind, [unit])
            elif reason is not None:
                self._stay(process.pid, kind, unit, reason)

    def _exchange(self, process: Process, kind: str, unit: Unit) -> Reason | None:
        """Exchange a page with the first cold one that can; returns why it stays."""
        key = (unit.pages, unit.node)
        wanted = self.request.targets
        if not all(self._may_use(process, unit.address, node) for node in wanted):
            return Reason.BOUND
        failed: list[tuple[int, bool]] = []
        reason = None
        for other, is_new in self._partners(key):
            if not self.keep_on():
                return None
            try:
                reason = self._pair(process, kind, unit, other)
            except _StaysError as stays:
                if stays.pid == self.cold.pid:
                    continue
                self._back[key].append(other)
                return stays.reason
            if reason is None:
                # The cold pages that failed before were the cause: leave them out.
                return None
            failed.append((other, is_new))
            if len(failed) == _PARTNERS:
                break
        # After a second failure a cold page is left out.
        self._back[key] += [other for other, is_new in failed if is_new]
        refused = key in self._refused
        return reason or (Reason.PARTNER_BOUND if refused else Reason.NO_PARTNER)

    def _pair(
        self, process: Process, kind: str, unit: Unit, other: int
    ) -> Reason | None:
        """Exchange two pages; returns the reason if the kernel does not.

        Each try reads the frames again. A page may still move on before the kernel
        looks, and its frame may have another owner then. The kernel exchanges what is
        there, so each owner keeps its content. Only the place may be wrong, of one page.
        """
        error, pages = 0, unit.pages
        for attempt in range(_TRIES):
            if attempt:
                time.sleep(_PAUSE_S)
            theirs = self._frame(self.cold, other, pages, self.request.targets)
            mine = self._frame(process, unit.address, pages, (unit.node,))
            if self.device is None:
                self._taken.add(other)
                self._foresee(process.pid, kind, [unit])
                return None
            begin = time.monotonic()
            error = self.device.exchange(mine, theirs)
            took_s = time.monotonic() - begin
            self.account.steps.add(pages, took_s, self.request.limit_s)
            if not error:
                if self._theirs.is_at(other, mine):
                    self.account.partner_pages += pages
                if not self._scanner.is_at(unit.address, theirs):
                    raise _StaysError(process.pid, Reason.GONE)
                self.account.moved[kind] += pages
                return None
            if error not in _AGAIN:
                break
        return _BY_ERROR[error]

    def _partners(self, key: tuple[int, int]) -> Iterator[tuple[int, bool]]:
        """Iterate over cold pages of a size, those that failed once at the end."""
        if key not in self._found:
            self._found[key], self._back[key] = self._search(*key), deque()
        for address in self._found[key]:
            yield address, True
        for _ in range(len(self._back[key])):
            yield self._back[key].popleft(), False

    def _search(self, pages: int, node: int) -> Iterator[int]:
        """Find cold pages that may go to a node."""
        for part in self._theirs.parts():
            self._require_frames(self._theirs)
            allowed = processes.allowed_nodes(self.files, self.cold.pid)
            for kind, units in sorted(part.units.items()):
                if not kind.startswith("anonymous"):
                    continue
                rows = zip(units.addresses, units.pages, strict=True)
                fitting = [address for address, size in rows if size == pages]
                where = self._nodes(self.cold, fitting)
                for address, here in zip(fitting, where, strict=True):
                    if here not in self.request.targets or address in self._taken:
                        continue
                    may = allowed is None or node in allowed
                    if may and self._may_use(self.cold, address, node):
                        yield address
                    else:
                        self._refused.add((pages, node))

    def _may_use(self, owner: Process, address: int, node: int) -> bool:
        """Say whether the owner lets a page at this address be on a node."""
        policies = self._policies[owner.pid]
        at = bisect.bisect(policies, address, key=lambda row: row[0]) - 1
        bound = policies[at][1] if at >= 0 else None
        return bound is None or node in bound

    def _nodes(self, owner: Process, addresses: Sequence[int]) -> Sequence[int]:
        """Look up the nodes of pages. If the cold process ended, others still stay."""
        try:
            self._require(owner)
            return self.mover.query(owner.pid, addresses)
        except PageferryError as error:
            if owner is not self.cold or error.what != processes.ENDED:
                raise
            return [-errno.ESRCH] * len(addresses)

    def _frame(
        self, owner: Process, address: int, pages: int, nodes: Collection[int]
    ) -> int:
        """Return the first frame of a page that can be exchanged, and is on a node."""
        scanner = self._theirs if owner is self.cold else self._scanner
        frame, reason = 0, None
        node = self._nodes(owner, [address])[0]
        if node < 0:
            reason = Reason.GONE
        elif node not in nodes:
            there = node in self.request.targets
            reason = Reason.THERE if there else Reason.ELSEWHERE
        else:
            frame, reason = scanner.folio(address, pages, shared=self.request.shared)
        if reason is not None:
            raise _StaysError(owner.pid, reason)
        return frame
