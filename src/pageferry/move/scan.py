# SPDX-License-Identifier: GPL-2.0-only
"""The pages of a process and their kinds, from /proc/PID/pagemap and /proc/kpageflags.

The scan does not read smaps and numa_maps. The kernel walks a whole mapping for these
while it holds mmap_lock, which would stall a large process. It walks 2 MiB at a time
for pagemap.
"""

from __future__ import annotations

import contextlib
import os
import re
from array import array
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from types import TracebackType

from pageferry.interleave.memory import (
    CHUNK_PAGES,
    cut,
    flags_of,
    open_pages,
    read_values,
)
from pageferry.move.account import Reason
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import (
    ANON,
    EXCLUSIVE,
    FILE,
    HEAD,
    HUGETLB,
    MLOCKED,
    NO_PAGE,
    PAGE,
    PFN,
    POISONED,
    PRESENT,
    RESERVED,
    SWAP_BACKED,
    SWAP_CACHE,
    SWAPPED,
    TAIL,
    UNEVICTABLE,
    WRITING,
    ZERO_PAGE,
)
from pageferry.units import PMD_BYTES

HUGE_PAGES = PMD_BYTES // PAGE
# Pages that never move, by flag.
_NEVER = (
    (ZERO_PAGE, Reason.ZERO_PAGE),
    (POISONED, Reason.POISONED),
    (NO_PAGE | RESERVED, Reason.KERNEL),
)
_NEVER_ANY = ZERO_PAGE | POISONED | NO_PAGE | RESERVED
# Flags of anonymous folios that the kernel can exchange, and of those that it cannot.
# Linux 6.12 shows KSM for all anonymous pages (stable_page_flags()), so the kernel's
# error has to tell these.
_FIT = ANON | SWAP_BACKED
_UNFIT = MLOCKED | UNEVICTABLE | SWAP_CACHE
# Marks of a page.
MAPPED_ONCE, IS_WRITTEN, IS_SECRET, IN_FILE = 1, 2, 4, 8

_LINE = re.compile(rb"([0-9a-f]+)-([0-9a-f]+) \S+ \S+ \S+ (\d+)\s*(.*)")
# Pages of the kernel, which the process did not ask for.
_LEFT_OUT = (b"[vdso]", b"[vsyscall]", b"[uprobes]", b"[vvar")
_SHMEM = (b"/dev/zero", b"/SYSV", b"/memfd:", b"/dev/shm/", b"/secretmem")
_SECRET = b"/secretmem"


@dataclass(frozen=True)
class Area:
    """A mapping, and the content that its pages have unless flags say otherwise."""

    start: int
    end: int
    content: str
    secret: bool = False


@dataclass
class Units:
    """Pages or large folios of one kind, in arrays of the same length."""

    addresses: array[int] = field(default_factory=lambda: array("Q"))
    pages: array[int] = field(default_factory=lambda: array("I"))
    marks: bytearray = field(default_factory=bytearray)

    def add(self, address: int, pages: int, mark: int) -> None:
        """Append one."""
        self.addresses.append(address)
        self.pages.append(pages)
        self.marks.append(mark)


@dataclass
class Part:
    """Some pages of a process: those that may move, and the others by reason."""

    units: dict[str, Units] = field(default_factory=dict)
    stayed: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    examples: dict[Reason, int] = field(default_factory=dict)

    def stay(self, kind: str, reason: Reason, pages: int, address: int) -> None:
        """Count pages that stay."""
        self.stayed[kind, reason] += pages
        self.examples.setdefault(reason, address)

    def found(self) -> Counter[str]:
        """Count all pages, by kind."""
        total: Counter[str] = Counter()
        for (kind, _), pages in self.stayed.items():
            total[kind] += pages
        for kind, units in self.units.items():
            total[kind] += sum(units.pages)
        return total

    def present(self) -> int:
        """Count the pages that have memory."""
        untouched = sum(
            pages
            for (_, reason), pages in self.stayed.items()
            if reason is Reason.NEVER_TOUCHED
        )
        return sum(self.found().values()) - untouched

    def size(self) -> int:
        """Count the addresses."""
        return sum(len(units.addresses) for units in self.units.values())


def parse_areas(text: bytes) -> list[Area]:
    """Parse /proc/PID/maps. File names may have any bytes."""
    areas = []
    for line in text.splitlines():
        match = _LINE.match(line)
        if match is None or match[4].startswith(_LEFT_OUT):
            continue
        content = "file" if int(match[3]) else "anonymous"
        if match[4].startswith(b"/anon_hugepage"):
            content = "hugetlb"
        elif match[4].startswith(_SHMEM):
            content = "shmem"
        secret = match[4].startswith(_SECRET)
        areas.append(Area(int(match[1], 16), int(match[2], 16), content, secret))
    return areas


def kind_of(flags: int, pages: int, area: Area) -> str:
    """Name the kind of a folio of this many pages."""
    if flags & HUGETLB:
        return "hugetlb"
    content = "file"
    if flags & ANON:
        content = "anonymous"
    elif flags & SWAP_BACKED or area.secret:
        content = "shmem"
    if pages == 1:
        return content
    if pages >= HUGE_PAGES:
        return f"{content} huge"
    return f"{content} {'large' if content == 'file' else 'mTHP'}"


class Scanner:
    """Reads the pages of one process; a context manager."""

    def __init__(
        self, files: Files, pid: int, span: tuple[int, int] | None = None
    ) -> None:
        self.files = files
        self.pid = pid
        self.span = span
        self._map = open_pages(files, f"/proc/{pid}/pagemap", pid)
        self._flags = -1
        # Flags need root. Without flags, each page is a unit, and its area names it.
        with contextlib.suppress(OSError):
            path = files.path("/proc/kpageflags")
            self._flags = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __enter__(self) -> Scanner:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        where: TracebackType | None,
    ) -> None:
        os.close(self._map)
        if self._flags >= 0:
            os.close(self._flags)

    @property
    def sees_frames(self) -> bool:
        """Say whether the kernel showed page frames and their flags so far."""
        return self._flags >= 0

    def areas(self) -> list[Area]:
        """List the mappings in the span; empty after the process has ended."""
        try:
            text = self.files.path(f"/proc/{self.pid}/maps").read_bytes()
        except OSError:
            return []
        areas = parse_areas(text)
        if self.span is None:
            return areas
        low, high = self.span
        return [
            Area(max(a.start, low), min(a.end, high), a.content, a.secret)
            for a in areas
            if a.start < high and low < a.end
        ]

    def entries(self, addresses: Sequence[int]) -> list[int]:
        """Read the page map at some addresses; 0 after the process has ended."""
        found = (read_values(self._map, address // PAGE, 1) for address in addresses)
        return [entry[0] if entry else 0 for entry in found]

    def flags(self, addresses: Sequence[int]) -> list[int]:
        """Read the flags of the pages at some addresses; 0 if they are not visible."""
        entries = self.entries(addresses)
        pfns = [entry & PFN if entry & PRESENT else 0 for entry in entries]
        if self._flags < 0 or not any(pfns):
            return [0] * len(pfns)
        return flags_of(self._flags, pfns)

    def is_at(self, address: int, frame: int) -> bool:
        """Say whether the page at an address is in a page frame now."""
        entry = self.entries([address])[0]
        return bool(entry & PRESENT) and entry & PFN == frame

    def folio(
        self, address: int, pages: int, *, shared: bool
    ) -> tuple[int, Reason | None]:
        """Return the first frame of a folio, and the reason against an exchange."""
        entries = read_values(self._map, address // PAGE, pages)
        here = len(entries) == pages and all(entry & PRESENT for entry in entries)
        if not here or self._flags < 0:
            return 0, Reason.GONE
        frame = entries[0] & PFN
        # The frame behind it tells whether the folio ends there.
        flags = read_values(self._flags, frame, pages + 1)
        tails = [bool(flag & TAIL) for flag in flags]
        reason = None
        if not shared and not all(entry & EXCLUSIVE for entry in entries):
            reason = Reason.SHARED
        elif any(flag & POISONED for flag in flags[:pages]):
            reason = Reason.POISONED
        elif any(flag & WRITING for flag in flags[:1]):
            reason = Reason.WRITEBACK
        # Others may own the part of a folio that is not mapped here.
        elif (
            [entry & PFN for entry in entries] != list(range(frame, frame + pages))
            or tails[:pages] != [False] + [True] * (pages - 1)
            or any(tails[pages:])
            or flags[0] & (_FIT | _UNFIT) != _FIT
        ):
            reason = Reason.UNFIT
        return frame, reason

    def parts(self) -> Iterator[Part]:
        """Iterate over all pages, about CHUNK_PAGES present ones at a time."""
        part = Part()
        for area in self.areas():
            for start, end in cut(area.start, area.end, CHUNK_PAGES * PAGE):
                self._read(part, area, start, end)
                # Combine areas: a program may have many with few pages each.
                if part.size() >= CHUNK_PAGES:
                    yield part
                    part = Part()
        yield part

    def _read(self, part: Part, area: Area, start: int, end: int) -> None:
        count = (end - start) // PAGE
        entries = read_values(self._map, start // PAGE, count)
        if len(entries) < count:
            left = start + len(entries) * PAGE
            part.stay(area.content, Reason.GONE, count - len(entries), left)
        # A fast check: programs reserve terabytes of addresses that they do not use.
        if not entries.tobytes().strip(b"\0"):
            if entries:
                part.stay(area.content, Reason.NEVER_TOUCHED, len(entries), start)
            return
        pfns = [entry & PFN if entry & PRESENT else 0 for entry in entries]
        if self._flags >= 0 and not any(pfns) and any(e & PRESENT for e in entries):
            # A user namespace: its root sees no frames.
            os.close(self._flags)
            self._flags = -1
        if self._flags < 0:
            _without_flags(part, area, start, entries)
            return
        flags = flags_of(self._flags, pfns) if any(pfns) else [0] * len(pfns)
        self._with_flags(part, area, start, entries, pfns, flags)

    def _with_flags(
        self,
        part: Part,
        area: Area,
        start: int,
        entries: Sequence[int],
        pfns: Sequence[int],
        flags: Sequence[int],
    ) -> None:
        at, count = 0, len(entries)
        # The head of this huge page was in the part before, which counted all of it.
        while at < count and pfns[at] and flags[at] & HUGETLB and flags[at] & TAIL:
            at += 1
        while at < count:
            pfn, flag, address = pfns[at], flags[at], start + at * PAGE
            if not pfn:
                run = _absent(part, area, address, entries, at)
                at += run
                continue
            run = pages = 1
            if flag & (HEAD | TAIL):
                run = _run(pfns, flags, at)
                pages = self._folio_pages(pfn, flag, run)
            here = pages if flag & HUGETLB else run
            if flag & _NEVER_ANY:
                # No flag tells the content of such a page, so its area does.
                why = next(why for bits, why in _NEVER if flag & bits)
                part.stay(area.content, why, here, address)
            else:
                kind = kind_of(flag, pages, area)
                units = part.units.setdefault(kind, Units())
                units.add(address, here, _mark(entries[at], flag, area))
            at += run

    def _folio_pages(self, pfn: int, flag: int, run: int) -> int:
        """Count the pages of a folio, also those that are not mapped here."""
        first, last = pfn, pfn + run
        if flag & TAIL and run < HUGE_PAGES:
            before = read_values(
                self._flags, max(pfn - HUGE_PAGES, 0), min(pfn, HUGE_PAGES)
            )
            while first > pfn - len(before) and before[first - pfn - 1] & TAIL:
                first -= 1
            first -= 1
        block = 1
        while True:
            after = read_values(self._flags, last, block)
            tails = next((i for i, f in enumerate(after) if not f & TAIL), len(after))
            last += tails
            if tails < block:
                return last - first
            block = min(block * 8, 1 << 15)


def _mark(entry: int, flag: int, area: Area) -> int:
    mark = MAPPED_ONCE if entry & EXCLUSIVE else 0
    if flag & WRITING:
        mark |= IS_WRITTEN
    if area.secret:
        mark |= IS_SECRET
    if area.content == "file":
        mark |= IN_FILE
    return mark


def _absent(
    part: Part, area: Area, address: int, entries: Sequence[int], at: int
) -> int:
    """Count the pages from here on that have no frame for the same reason."""
    entry = entries[at]
    if entry & PRESENT:
        part.stay(area.content, Reason.KERNEL, 1, address)
        return 1
    swapped = entry & SWAPPED
    stop = at + 1
    mask = PRESENT | SWAPPED
    while stop < len(entries) and entries[stop] & mask == swapped:
        stop += 1
    why = Reason.NOT_PRESENT if swapped else Reason.NEVER_TOUCHED
    part.stay(area.content, why, stop - at, address)
    return stop - at


def _run(pfns: Sequence[int], flags: Sequence[int], at: int) -> int:
    """Count the pages of one folio that are mapped here, one after the other."""
    stop, pfn = at + 1, pfns[at] + 1
    while stop < len(pfns) and pfns[stop] == pfn and flags[stop] & TAIL:
        stop += 1
        pfn += 1
    return stop - at


def _without_flags(part: Part, area: Area, start: int, entries: Sequence[int]) -> None:
    at = 0
    while at < len(entries):
        entry, address = entries[at], start + at * PAGE
        if not entry & PRESENT:
            at += _absent(part, area, address, entries, at)
            continue
        kind = area.content
        if kind == "file" and not entry & FILE:
            kind = "anonymous"
        units = part.units.setdefault(kind, Units())
        units.add(address, 1, _mark(entry, 0, area))
        at += 1
