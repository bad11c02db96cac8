# SPDX-License-Identifier: GPL-2.0-only
"""The size of a page, and the bits of pages in the kernel's files.

Documentation/admin-guide/mm/pagemap.rst of Linux describes them.
"""

from __future__ import annotations

import os

PAGE = os.sysconf("SC_PAGE_SIZE")

# /proc/PID/pagemap
PRESENT = 1 << 63
SWAPPED = 1 << 62
FILE = 1 << 61
EXCLUSIVE = 1 << 56
PFN = (1 << 55) - 1

# /proc/kpageflags
LRU = 1 << 5
SLAB = 1 << 7
WRITING = 1 << 8
FREE = 1 << 10
ANON = 1 << 12
SWAP_CACHE = 1 << 13
SWAP_BACKED = 1 << 14
HEAD = 1 << 15
TAIL = 1 << 16
HUGETLB = 1 << 17
UNEVICTABLE = 1 << 18
POISONED = 1 << 19
NO_PAGE = 1 << 20
KSM = 1 << 21
OFFLINE = 1 << 23
ZERO_PAGE = 1 << 24
PAGE_TABLE = 1 << 26
RESERVED = 1 << 32
MLOCKED = 1 << 33


def is_secret(flags: int) -> bool:
    """Say whether a page is of secret memory.

    Shared memory with SHM_LOCK is unevictable without mlock(2), too, and has swap.
    """
    return flags & (UNEVICTABLE | MLOCKED | SWAP_BACKED) == UNEVICTABLE
