# SPDX-License-Identifier: GPL-2.0-only
"""The mappings of a process, and the folios in them.

/proc/PID/pagemap gives the physical page of each address. /proc/kpageflags gives the
physical pages of each folio. Both need root.
"""

from __future__ import annotations

import errno
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from pageferry.errors import ExitCode, PageferryError, unsupported, usage_error
from pageferry.interleave import placement
from pageferry.interleave.weights import folio_index
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import (
    HEAD,
    HUGETLB,
    PAGE,
    PFN,
    POISONED,
    PRESENT,
    RESERVED,
    TAIL,
    ZERO_PAGE,
)

# Pages that are read and moved at a time: 64 MiB of 4K pages. Areas are cut at
# multiples of this size, so that no folio is cut.
CHUNK_PAGES = 16384

# Flags of pages that migration does not move, and the reason.
_LEFT_ALONE = (
    (HUGETLB, "hugetlb pages"),
    (POISONED, "poisoned"),
    (RESERVED, "memory of the kernel"),
)
_IGNORED = sum(bit for bit, _ in _LEFT_ALONE) | ZERO_PAGE
# Pages of the kernel, and the stack: the kernel does not show its offset.
_LEFT_OUT = ("[vdso]", "[vsyscall]", "[uprobes]", "[vvar", "[stack]")
_LINE = re.compile(r"([0-9a-f]+)-([0-9a-f]+) \S+ ([0-9a-f]+) \S+ (\d+)\s*(.*)")
# Reading the flags of this many unneeded pages is cheaper than a system call.
_GAP = 64


@dataclass(frozen=True)
class Area:
    """A mapping. Its offset counts pages, like vm_pgoff."""

    start: int
    end: int
    page_offset: int


@dataclass
class Folios:
    """Folios of some areas, in four lists of the same length."""

    # Address of the first page that is mapped here.
    addresses: list[int] = field(default_factory=list)
    indexes: list[int] = field(default_factory=list)
    orders: list[int] = field(default_factory=list)
    # Number of pages of the folio that are mapped here.
    pages: list[int] = field(default_factory=list)
    # Pages that never move, by reason.
    left_alone: Counter[str] = field(default_factory=Counter)

    def add(self, more: Folios) -> None:
        """Append other folios."""
        self.addresses += more.addresses
        self.indexes += more.indexes
        self.orders += more.orders
        self.pages += more.pages
        self.left_alone.update(more.left_alone)


def parse_areas(text: str) -> list[Area]:
    """Parse /proc/PID/maps."""
    areas = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[5].startswith(_LEFT_OUT):
            continue
        start, end, inode = int(match[1], 16), int(match[2], 16), int(match[4])
        # For memory without a file the kernel counts from address 0, and shows 0
        # here. After mremap(2) the kernel still uses the old address.
        offset = int(match[3], 16) if inode else start
        areas.append(Area(start, end, offset // PAGE))
    return areas


class Memory:
    """The memory of one process; a context manager.

    targets: the nodes to which memory is to move. Mappings that their owner has bound
    to other nodes are left alone.
    """

    def __init__(self, files: Files, pid: int, targets: Iterable[int] = ()) -> None:
        self.files = files
        self.pid = pid
        self.bound = {b.start: b for b in placement.bound(files, pid, targets)}
        self._map = open_pages(files, f"/proc/{pid}/pagemap", pid)
        try:
            self._flags = open_pages(files, "/proc/kpageflags", pid)
        except BaseException:
            os.close(self._map)
            raise

    def __enter__(self) -> Memory:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self._map)
        os.close(self._flags)

    def areas(self) -> list[Area]:
        """List the mappings; empty after the process has ended."""
        try:
            text = self.files.path(f"/proc/{self.pid}/maps").read_bytes()
        except (FileNotFoundError, ProcessLookupError):
            # It ended after its page map was opened.
            return []
        except OSError as error:
            raise _cannot_look(error, self.files, f"/proc/{self.pid}/maps") from error
        return parse_areas(text.decode(errors="replace"))

    def folios(self) -> Iterator[Folios]:
        """Iterate over the folios of all areas, some pages at a time."""
        found, count = Folios(), 0
        for area in self.areas():
            if area.start in self.bound:
                pages = self.bound[area.start].pages
                found.left_alone["bound to other nodes by its owner"] += pages
                continue
            for start, end in cut(area.start, area.end, CHUNK_PAGES * PAGE):
                part = self._part(area, start, end)
                found.add(part)
                count += sum(part.pages)
                # Combine areas: a program may have many with few pages each.
                if count >= CHUNK_PAGES:
                    yield found
                    found, count = Folios(), 0
        if found.addresses or found.left_alone:
            yield found

    def _part(self, area: Area, start: int, end: int) -> Folios:
        entries = read_values(self._map, start // PAGE, (end - start) // PAGE)
        # A fast check: programs reserve terabytes of addresses that they do not use.
        if not entries.tobytes().strip(b"\0"):
            return Folios()
        pfns = [entry & PFN if entry & PRESENT else 0 for entry in entries]
        first = area.page_offset + (start - area.start) // PAGE
        if not any(pfns):
            if any(entry & PRESENT for entry in entries):
                raise not_allowed(self.files.path(f"/proc/{self.pid}/pagemap"))
            return Folios()
        flags = flags_of(self._flags, pfns)
        if not any(flag & (HEAD | TAIL | _IGNORED) for flag in flags):
            here = [i for i, pfn in enumerate(pfns) if pfn]
            ones = [1] * len(here)
            return Folios(
                addresses=[start + i * PAGE for i in here],
                indexes=[first + i for i in here],
                orders=[0] * len(here),
                pages=ones,
            )
        return self._mixed(pfns, flags, start, first)

    def _mixed(
        self, pfns: Sequence[int], flags: Sequence[int], start: int, first: int
    ) -> Folios:
        """Combine the pages of each folio."""
        found = Folios()
        at = 0
        while at < len(pfns):
            pfn, flag = pfns[at], flags[at]
            head, order, run = pfn, 0, 1
            if pfn and flag & (HEAD | TAIL):
                head, order = self._folio(pfns, flags, at)
                whole = (1 << order) - (pfn - head)
                run = _run(pfns, at, whole)
            why = next((why for bit, why in _LEFT_ALONE if flag & bit), None)
            if why is not None:
                found.left_alone[why] += run
            elif pfn and not flag & ZERO_PAGE:
                # The offset of the folio's first page, which may not be mapped here.
                offset = first + at - (pfn - head)
                found.addresses.append(start + at * PAGE)
                found.indexes.append(folio_index(offset, order))
                found.orders.append(order)
                found.pages.append(run)
            at += run
        return found

    def _folio(
        self, pfns: Sequence[int], flags: Sequence[int], at: int
    ) -> tuple[int, int]:
        """Find the first physical page of a folio, and its order."""
        head = pfns[at]
        while self._flag(head) & TAIL:
            head -= 1
        count = pfns[at] - head + 1
        if head == pfns[at]:
            # Usually the whole folio is mapped here, so its flags are known.
            top = min(len(pfns), at + (1 << 18))
            while (
                at + count < top
                and pfns[at + count] == head + count
                and flags[at + count] & TAIL
            ):
                count += 1
        while self._flag(head + count) & TAIL:
            count += 1
        return head, count.bit_length() - 1

    def _flag(self, pfn: int) -> int:
        known = read_values(self._flags, pfn, 1)
        return known[0] if known else 0


def flags_of(handle: int, pfns: Sequence[int]) -> list[int]:
    """Read the flags of many pages with few system calls."""
    table: dict[int, int] = {0: 0}
    wanted = sorted(pfn for pfn in pfns if pfn)
    begin = last = wanted[0]
    for pfn in [*wanted, 1 << 60]:
        if pfn - last > _GAP:
            data = read_values(handle, begin, last - begin + 1)
            table.update(zip(range(begin, last + 1), data, strict=False))
            begin = pfn
        last = pfn
    return [table.get(pfn, 0) for pfn in pfns]


def read_values(handle: int, first: int, count: int) -> array[int]:
    """Read some of the 64-bit values of a file; fewer after the process has ended."""
    values = array("Q")
    try:
        data = os.pread(handle, count * 8, first * 8)
    except ProcessLookupError:
        data = b""
    values.frombytes(data[: len(data) // 8 * 8])
    return values


def cut(start: int, end: int, size: int) -> Iterator[tuple[int, int]]:
    """Divide a range at the multiples of a size."""
    while start < end:
        stop = min(end, (start // size + 1) * size)
        yield start, stop
        start = stop


def _run(pfns: Sequence[int], at: int, longest: int) -> int:
    """Count the pages that are contiguous in physical memory, too."""
    stop = min(len(pfns), at + longest)
    expected = list(range(pfns[at], pfns[at] + stop - at))
    if list(pfns[at:stop]) == expected:
        return stop - at
    return next(i for i, pfn in enumerate(expected) if pfns[at + i] != pfn)


def open_pages(files: Files, name: str, pid: int) -> int:
    """Open a file of the kernel about the pages of a process."""
    path = files.path(name)
    try:
        return os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        process = processes.find(files, pid)
        gone = error.errno == errno.ESRCH
        if process is None or process.ended or (gone and not process.kernel_thread):
            raise processes.ended(pid, "before its memory was looked at") from error
        if gone:
            raise usage_error(
                "this process has no memory of its own", str(pid), "a kernel thread"
            ) from error
        raise _cannot_look(error, files, name) from error


def _cannot_look(error: OSError, files: Files, name: str) -> PageferryError:
    path = files.path(name)
    if error.errno in (errno.EACCES, errno.EPERM):
        return not_allowed(path)
    if error.errno == errno.ENOENT:
        return unsupported(
            "this kernel does not show the pages of a folio",
            path,
            "it lacks CONFIG_PROC_PAGE_MONITOR",
        )
    return PageferryError("cannot read", value=path, reason=error.strerror)


def not_allowed(path: object) -> PageferryError:
    """Make the error for a kernel that shows no page frames to this user."""
    return PageferryError(
        "cannot see where memory is",
        value=str(path),
        reason="the kernel shows physical pages only to root",
        hint="run it as root",
        code=ExitCode.FAILED,
    )
