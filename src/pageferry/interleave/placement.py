# SPDX-License-Identifier: GPL-2.0-only
"""The nodes of a process's memory, and the policies that its owner has set.

The kernel counts pages by node in /proc/PID/numa_maps, without a step of Python for
each page. The file also has the memory policy of each mapping.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

from pageferry.sysfs.files import Files
from pageferry.units import KIB, parse_nodes

_PAGES = re.compile(r" N(\d+)=(\d+)")
_PAGE_KIB = re.compile(r" kernelpagesize_kB=(\d+)")
# MPOL_BIND, with or without flags: bind:1 or bind=static:0-1.
_BIND = re.compile(r"[0-9a-f]+ bind(?:=[^:]*)?:([\d,-]+)")


@dataclass
class Placement:
    """The memory of some processes."""

    # Bytes on each node.
    bytes: Counter[int] = field(default_factory=Counter)
    # Whether the kernel showed it.
    known: bool = False

    @property
    def shares(self) -> dict[int, float]:
        """Return the share of each node; empty without memory."""
        total = sum(self.bytes.values())
        return {n: size / total for n, size in self.bytes.items() if size}


@dataclass(frozen=True)
class Bound:
    """A mapping that its owner has bound to some nodes."""

    start: int
    nodes: frozenset[int]
    pages: int
    # Only a policy of the whole process binds its stack.
    stack: bool


def read(files: Files, pids: Iterable[int], nodes: Iterable[int]) -> Placement:
    """Add up the memory of processes that may move among these nodes.

    Programs and libraries do not count: all processes share their clean pages. Nor do
    hugetlb pages, the stack, and memory that its owner has bound: these stay.
    """
    found, wanted = Placement(), set(nodes)
    for pid in pids:
        text = files.read_or(f"/proc/{pid}/numa_maps", "")
        for line in text.splitlines():
            found.known = True
            clean = " file=" in line and " anon=" not in line and " dirty=" not in line
            if clean or " huge" in line or " stack" in line:
                continue
            policy = _bound_to(line)
            if policy is not None and not wanted <= policy:
                continue
            size = _PAGE_KIB.search(line)
            page_bytes = int(size[1]) * KIB if size else 0
            for node, pages in _PAGES.findall(line):
                found.bytes[int(node)] += int(pages) * page_bytes
    return found


def bound(files: Files, pid: int, nodes: Iterable[int]) -> list[Bound]:
    """List the mappings of a process that may not have memory on all of these nodes.

    Raises an error if the kernel does not say: then each mapping may be one.
    """
    wanted, found = set(nodes), []
    for line in files.read_if_there(f"/proc/{pid}/numa_maps").splitlines():
        allowed = _bound_to(line)
        if allowed is not None and not wanted <= allowed:
            pages = sum(int(count) for _, count in _PAGES.findall(line))
            start, stack = int(line.split()[0], 16), " stack" in line
            found.append(Bound(start, allowed, pages, stack))
    return found


def policies(files: Files, pid: int) -> list[tuple[int, frozenset[int] | None]]:
    """List the first addresses of all mappings, with the nodes that bind each.

    A mapping ends where the next one begins, or before. No page lies in between.
    """
    lines = files.read(f"/proc/{pid}/numa_maps").splitlines()
    return [(int(line.split()[0], 16), _bound_to(line)) for line in lines if line]


def _bound_to(line: str) -> frozenset[int] | None:
    """Return the nodes to which the owner has bound a mapping; None if to none."""
    policy = _BIND.match(line)
    return frozenset(parse_nodes(policy[1])) if policy else None
