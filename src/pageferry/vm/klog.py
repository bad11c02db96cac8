# SPDX-License-Identifier: GPL-2.0-only
"""Search a kernel log for messages that make a test fail."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

# Each of these messages makes a test fail.
_SYMPTOMS = re.compile(
    r"BUG:|kernel BUG at|WARNING:|Oops:|Kernel panic|general protection fault"
    r"|KASAN:|UBSAN:|KFENCE:|KCSAN:|Bad page (?:state|map|cache)|BUG: Bad rss"
    r"|unable to handle (?:kernel|page fault)|list_(?:add|del) corruption"
    r"|possible (?:circular|recursive) locking|inconsistent lock state"
    r"|possible irq lock inversion|suspicious RCU usage|bad unlock balance"
    r"|held lock freed|lock held when returning|INFO: lockdep"
    r"|rcu[\w: ]*detected[\w ]* stalls|self-detected stall"
    r"|blocked for more than \d+ seconds|soft lockup|hard LOCKUP|workqueue lockup"
    r"|sleeping function called|scheduling while atomic"
    r"|refcount_t:|stack segment:|page dumped because|Object corrupt"
)
# In a package with several nodes, QEMU's CPUs share a cache. Linux says so, and ignores
# that cache. Processors with sub-NUMA clustering have a cache for each node.
_EMULATED = re.compile(r"WARNING: .* topology_sane")
_STAMP = re.compile(r"^\[\s*\d+\.\d+\](?:\[[^\]]*\])?\s*")
_PANIC = re.compile(r"Kernel panic - not syncing")


def findings(lines: Iterable[str], allowed: Sequence[str] = ()) -> list[str]:
    """List the messages in a log that no allowed pattern matches."""
    expected = [re.compile(pattern) for pattern in allowed]
    found: list[str] = []
    for line in lines:
        text = _STAMP.sub("", line.strip())
        if not _SYMPTOMS.search(text) or _EMULATED.search(text):
            continue
        if any(pattern.search(text) for pattern in expected):
            continue
        if text not in found:
            found.append(text)
    return found


def is_panic(line: str) -> bool:
    """Say whether a line is a kernel panic."""
    return _PANIC.search(line) is not None


def stamp_s(line: str) -> float | None:
    """Read the time stamp of a line."""
    match = re.match(r"\[\s*(\d+\.\d+)\]", line)
    return float(match[1]) if match else None
