# SPDX-License-Identifier: GPL-2.0-only
"""The account of a move: each page that was found has one outcome.

The account holds counters and no pages, so its size does not depend on the memory.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from enum import StrEnum

from pageferry.errors import PageferryError
from pageferry.sysfs.processes import Process


class Reason(StrEnum):
    """A reason why a page stayed; the names are keys of --json."""

    NEVER_TOUCHED = "never_touched"
    ZERO_PAGE = "zero_page"
    NOT_PRESENT = "not_present"
    THERE = "already_there"
    ELSEWHERE = "elsewhere"
    KERNEL = "kernel"
    POISONED = "poisoned"
    SHARED = "shared"
    PINNED = "pinned"
    UNEVICTABLE = "unevictable"
    WRITEBACK = "writeback"
    NO_ROOM = "no_room"
    NO_LARGE_ROOM = "no_large_room"
    NOT_ALLOWED = "not_allowed"
    NO_PARTNER = "no_partner"
    PARTNER_BOUND = "partner_bound"
    BOUND = "bound"
    UNFIT = "unfit"
    NOT_ANONYMOUS = "not_anonymous"
    GONE = "gone"
    NOT_TRIED = "not_tried"


# Nobody asked for these pages to move, or there is no page.
NOT_ASKED = frozenset(
    {
        Reason.NEVER_TOUCHED,
        Reason.ZERO_PAGE,
        Reason.NOT_PRESENT,
        Reason.THERE,
        Reason.ELSEWHERE,
        Reason.KERNEL,
        Reason.NOT_ANONYMOUS,
    }
)
# These pages stay because the options say so, or because the process freed them.
EXPECTED = NOT_ASKED | {Reason.SHARED, Reason.GONE}

TEXTS = {
    Reason.NEVER_TOUCHED: "never touched: the addresses are reserved, and have no page",
    Reason.ZERO_PAGE: "the zero page: read, never written; all processes share it",
    Reason.NOT_PRESENT: "in swap, or taken out of the page table for a moment",
    Reason.THERE: "on the destination before",
    Reason.ELSEWHERE: "on nodes that --from does not name",
    Reason.KERNEL: "memory of a device, a driver or the kernel: Linux never moves it",
    Reason.POISONED: "broken memory: the kernel has poisoned the page",
    Reason.SHARED: "shared with others: --all moves them, and needs CAP_SYS_NICE",
    Reason.PINNED: "pinned, or in use by the kernel at that time",
    Reason.UNEVICTABLE: "unevictable, and of a kind that Linux does not move: secret memory",
    Reason.WRITEBACK: "being written to a disk or a server (writeback)",
    Reason.NO_ROOM: "no room on the destination",
    Reason.NO_LARGE_ROOM: "no room in one piece on the destination: a large page stays whole",
    Reason.NOT_ALLOWED: "not allowed: the kernel refused the destination",
    Reason.NO_PARTNER: "no page of this size is left to exchange with",
    Reason.PARTNER_BOUND: "the other process may not use this node (cpuset, MPOL_BIND)",
    Reason.BOUND: "the process has bound this memory to other nodes (MPOL_BIND)",
    Reason.UNFIT: "mlocked, of KSM, in the swap cache, MADV_FREE, or mapped in part",
    Reason.NOT_ANONYMOUS: "not anonymous: the kernel exchanges anonymous memory only",
    Reason.GONE: "gone: the process freed the page, or ended",
    Reason.NOT_TRIED: "not tried: the command was stopped before",
}

# An outcome beside the reasons.
MOVED = "moved"


@dataclass
class Steps:
    """The calls that moved pages; their times bound the stalls of threads.

    The times are those without the fixed part of each call.
    """

    count: int = 0
    longest_s: float = 0.0
    total_s: float = 0.0
    over_limit: int = 0
    smallest_pages: int = 0
    largest_pages: int = 0
    fixed_s: float = 0.0

    def add(self, pages: int, took_s: float, limit_s: float) -> None:
        """Count a call."""
        self.smallest_pages = min(self.smallest_pages, pages) if self.count else pages
        self.largest_pages = max(self.largest_pages, pages)
        self.count += 1
        self.total_s += took_s
        self.longest_s = max(self.longest_s, took_s)
        self.over_limit += took_s > limit_s


@dataclass
class Account:
    """Outcomes in base pages, by kind and reason."""

    found: Counter[str] = field(default_factory=Counter)
    moved: Counter[str] = field(default_factory=Counter)
    # In a dry run: pages that nothing seems to keep.
    movable: Counter[str] = field(default_factory=Counter)
    stayed: Counter[tuple[str, Reason]] = field(default_factory=Counter)
    # Pages whose holder is known, by its name.
    pinned_by: Counter[str] = field(default_factory=Counter)
    # The first address with each reason.
    examples: dict[Reason, tuple[int, int]] = field(default_factory=dict)
    # Programs and devices of the process that may pin pages.
    suspects: dict[str, int] = field(default_factory=dict)
    # The cold process of an exchange, and its pages that changed places.
    partner: Process | None = None
    partner_pages: int = 0
    steps: Steps = field(default_factory=Steps)
    processes: int = 0
    ended_processes: int = 0
    elapsed_s: float = 0.0
    interrupted: bool = False
    sees_frames: bool = True
    # One for each process whose move was refused.
    failures: list[PageferryError] = field(default_factory=list)

    def stay(
        self, kind: str, reason: Reason, pages: int, where: tuple[int, int] | None
    ) -> None:
        """Count pages that stay; `where` is a process and an address."""
        if not pages:
            return
        self.stayed[kind, reason] += pages
        if where is not None:
            self.examples.setdefault(reason, where)

    def kinds(self) -> list[str]:
        """List the kinds that were found."""
        return sorted(self.found)

    def reasons(self) -> Counter[Reason]:
        """Count the pages that stayed, by reason."""
        total: Counter[Reason] = Counter()
        for (_, reason), pages in self.stayed.items():
            total[reason] += pages
        return total

    def asked(self, kind: str) -> int:
        """Count the pages of a kind that were to move."""
        left_out = sum(self.stayed[kind, reason] for reason in NOT_ASKED)
        return self.found[kind] - left_out

    def rest(self) -> Counter[str]:
        """Count the pages without an outcome, by kind."""
        rest = Counter(self.found)
        rest.subtract(self.moved)
        rest.subtract(self.movable)
        for (kind, _), pages in self.stayed.items():
            rest[kind] -= pages
        return rest

    def close(self, reason: Reason) -> None:
        """Give a reason to all pages without an outcome."""
        for kind, pages in self.rest().items():
            self.stay(kind, reason, pages, None)

    @property
    def moved_pages(self) -> int:
        """Count the pages that moved."""
        return sum(self.moved.values())

    @property
    def kept_pages(self) -> int:
        """Count the pages that were to move, and stayed against the options."""
        return sum(
            pages
            for (_, reason), pages in self.stayed.items()
            if reason not in EXPECTED
        )
