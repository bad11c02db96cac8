# SPDX-License-Identifier: GPL-2.0-only
"""A machine with nodes and processes, as files in a directory."""

from __future__ import annotations

import errno
import struct
from collections.abc import Sequence
from dataclasses import dataclass, field

from pageferry.move.mover import NOWHERE
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import EXCLUSIVE, HEAD, PAGE, PRESENT, TAIL

BASE = 0x7F0000000000


def add_node(files: Files, number: int, mib: int = 1024) -> None:
    """Add a node with memory."""
    node = files.path(f"/sys/devices/system/node/node{number}")
    node.mkdir(parents=True)
    (node / "cpulist").write_text("0\n")
    kib = mib * 1024
    (node / "meminfo").write_text(
        f"Node {number} MemTotal: {kib} kB\nNode {number} MemFree: {kib} kB\n"
    )


def add_process(
    files: Files,
    pid: int,
    *,
    parent: int = 1,
    name: str = "work",
    state: str = "S",
    flags: int = 0,
) -> None:
    """Add a process without memory."""
    directory = files.path(f"/proc/{pid}")
    directory.mkdir(parents=True, exist_ok=True)
    rest = " ".join(["0"] * 4 + [str(flags)] + ["0"] * 12)
    start = pid * 10
    (directory / "stat").write_text(
        f"{pid} ({name}) {state} {parent} {rest} {start} 0\n"
    )
    (directory / "maps").write_text("")
    (directory / "numa_maps").write_text("")
    (directory / "pagemap").write_bytes(b"")
    page_flags = files.path("/proc/kpageflags")
    if not page_flags.exists():
        page_flags.write_bytes(b"")


def add_area(
    files: Files, pid: int, start: int, pages: Sequence[int], line: str = ""
) -> None:
    """Map pages by their frame numbers; 0 is a hole."""
    end = start + len(pages) * PAGE
    text = line or "rw-p 00000000 00:00 0"
    with files.path(f"/proc/{pid}/maps").open("a") as maps:
        maps.write(f"{start:x}-{end:x} {text}\n")
    with files.path(f"/proc/{pid}/pagemap").open("r+b") as stream:
        stream.seek(start // PAGE * 8)
        entries = [pfn | PRESENT if pfn else 0 for pfn in pages]
        stream.write(struct.pack(f"<{len(entries)}Q", *entries))


def set_flags(files: Files, pfn: int, flags: Sequence[int]) -> None:
    """Set the flags of page frames."""
    with files.path("/proc/kpageflags").open("r+b") as stream:
        stream.seek(pfn * 8)
        stream.write(struct.pack(f"<{len(flags)}Q", *flags))


def large(order: int, extra: int = 0) -> list[int]:
    """Return the flags for the pages of a large folio."""
    return [HEAD | extra] + [TAIL | extra] * ((1 << order) - 1)


@dataclass
class FakeMover:
    """Moves pages in a table instead of memory."""

    # Node by address; all others are on node 0.
    where: dict[int, int] = field(default_factory=dict)
    # Free pages by node; a missing node has any number.
    free: dict[int, int] = field(default_factory=dict)
    # Pages that do not move, and their error.
    stuck: dict[int, int] = field(default_factory=dict)
    pages_of: dict[int, int] = field(default_factory=dict)
    moves: list[tuple[int, int]] = field(default_factory=list)
    steps: list[int] = field(default_factory=list)
    # The process ends after this many steps.
    ends_after: int | None = None

    def query(self, pid: int, addresses: Sequence[int]) -> Sequence[int]:
        """Return the node of each page."""
        if self.ends_after is not None and len(self.steps) >= self.ends_after:
            raise processes.ended(pid, "in the test")
        return [self.where.get(address, 0) for address in addresses]

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Move the pages that can move."""
        if self.ends_after is not None and len(self.steps) >= self.ends_after:
            raise processes.ended(pid, "in the test")
        if list(addresses) == [NOWHERE]:
            return [-errno.EFAULT]
        self.steps.append(len(addresses))
        return [self._one(address, node) for address in addresses]

    def _one(self, address: int, node: int) -> int:
        if address in self.stuck:
            return -self.stuck[address]
        size = self.pages_of.get(address, 1)
        if self.free.get(node, size) < size:
            return -errno.ENOMEM
        before = self.where.get(address, 0)
        for at, change in ((node, -size), (before, size)):
            if at in self.free:
                self.free[at] += change
        self.where[address] = node
        self.moves.append((address, node))
        return 0


class FakeExchange:
    """Exchanges the frames of two pages in the page maps of processes."""

    def __init__(self, files: Files, mover: FakeMover) -> None:
        self.files, self.mover = files, mover
        # Process, address and number of pages, by first frame.
        self.owners: dict[int, tuple[int, int, int]] = {}
        # Errors to return for a frame, the next one last.
        self.errors: dict[int, list[int]] = {}
        self.pairs: list[tuple[int, int]] = []

    def add(self, pid: int, address: int, frame: int, flags: Sequence[int]) -> None:
        """Map a folio that no other process maps."""
        entries = [(frame + at) | EXCLUSIVE for at in range(len(flags))]
        add_area(self.files, pid, address, entries)
        set_flags(self.files, frame, flags)
        self.owners[frame] = (pid, address, len(flags))

    def exchange(self, first: int, second: int) -> int:
        """Exchange the owners of two frames."""
        self.pairs.append((first, second))
        for frame in (first, second):
            if self.errors.get(frame):
                return self.errors[frame].pop()
        mine, theirs = self.owners[first], self.owners[second]
        self.owners[first], self.owners[second] = theirs, mine
        for frame, (pid, address, pages) in ((first, theirs), (second, mine)):
            with self.files.path(f"/proc/{pid}/pagemap").open("r+b") as stream:
                stream.seek(address // PAGE * 8)
                entries = [(frame + at) | EXCLUSIVE | PRESENT for at in range(pages)]
                stream.write(struct.pack(f"<{pages}Q", *entries))
        where = self.mover.where
        a, b = mine[1], theirs[1]
        where[a], where[b] = where.get(b, 0), where.get(a, 0)
        return 0
