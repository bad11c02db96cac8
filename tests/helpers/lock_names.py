# SPDX-License-Identifier: GPL-2.0-only
"""The names of our locks in /proc/lock_stat."""

from __future__ import annotations

import re
from functools import cache

from helpers import sources

_STATIC = re.compile(r"\bDEFINE_(?:RAW_)?(?:MUTEX|SPINLOCK)\((\w+)\)")
_QUEUE = re.compile(r"\bDECLARE_WAIT_QUEUE_HEAD\((\w+)\)")
_DYNAMIC = re.compile(
    r"\b(?:(?:raw_)?spin_lock_init|mutex_init|init_rwsem|init_waitqueue_head)\(([^)]+)\)"
)
# lockdep appends: the version of a name, a nesting level, and read or write.
_MARKS = re.compile(r"(?:#\d+)?(?:/\d+)?(?:-[RW])?$")


@cache
def ours() -> frozenset[str]:
    """Collect them from the sources of the core and the engines.

    dmasim stands for hardware, so its locks do not count.
    """
    found: set[str] = set()
    patterns = ("mm/**/*.c", "drivers/migrate_offload/**/*.c")
    for path in sources.ours(*patterns).values():
        text = path.read_text()
        found.update(_STATIC.findall(text), _DYNAMIC.findall(text))
        found.update(f"({name}).lock" for name in _QUEUE.findall(text))
    return frozenset(found)


def named(text: str) -> list[str]:
    """Read the names of locks from a row of `bench scale`, without the numbers."""
    words = [one.rpartition(" ")[0] for one in text.split(", ") if one]
    return [_MARKS.sub("", word) for word in words]
