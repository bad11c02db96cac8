# SPDX-License-Identifier: GPL-2.0-only
"""Runs in a virtual machine: migrates a known amount between two snapshots of `top`."""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
from pathlib import Path

from pageferry import output
from pageferry.cli import main as pageferry
from pageferry.interleave.moving import MovePages
from pageferry.sysfs.files import Files
from pageferry.watch import view
from pageferry.watch.interval import Watcher

INSTANCES = Path("/sys/kernel/tracing/instances")
TOTAL_BYTES = 32 << 20
PAGE = mmap.PAGESIZE


def load() -> int:
    """Move memory to node 1, back, and there again; returns the pages that moved."""
    memory = mmap.mmap(-1, TOTAL_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory.madvise(mmap.MADV_NOHUGEPAGE)
    for at in range(0, TOTAL_BYTES, PAGE):
        memory[at] = 1
    first = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pages = range(first, first + TOTAL_BYTES, PAGE)
    mover = MovePages(Files())
    moved = 0
    for node in (1, 0, 1):
        was = mover.query(os.getpid(), pages)
        mover.move(os.getpid(), pages, node)
        now = mover.query(os.getpid(), pages)
        moved += sum(a != b for a, b in zip(was, now, strict=True))
    return moved


def main() -> int:
    """Print the load, the document of top, and what is left of its trace."""
    # The load's memory begins on node 0.
    os.sched_setaffinity(0, {0})
    watcher = Watcher(Files())
    moved = load()
    said = view.document(watcher.interval())
    watcher.close()
    left = [path.name for path in INSTANCES.iterdir()]
    found = {"moved": moved, "pid": os.getpid(), "left": left, "top": said}
    output.answer_json(found)
    sys.stdout = sys.stderr
    return pageferry(["top", "--once", "--every", "1s"])


if __name__ == "__main__":
    sys.exit(main())
