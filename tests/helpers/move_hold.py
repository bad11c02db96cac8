# SPDX-License-Identifier: GPL-2.0-only
"""A process with pages of every kind, for tests of `pageferry move`.

python3 -m helpers.move_hold FILE NAME...: prints {name: [address, pages]}, then obeys
the words on stdin. It uses no other modules of the tests, so it starts quickly.
"""

from __future__ import annotations

import ctypes
import json
import mmap
import os
import platform
import random
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

PAGE = mmap.PAGESIZE
PAGES = 64
MIB = 1 << 20
HUGE = 2 * MIB
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS
_MAP_HUGETLB = 0x40000
_MADV_HUGEPAGE, _MADV_NOHUGEPAGE, _MADV_PAGEOUT = 14, 15, 21
# The same numbers on x86-64 and arm64.
_IO_URING_SETUP, _IO_URING_REGISTER, _MEMFD_SECRET = 425, 427, 447
_MBIND = {"x86_64": 237, "aarch64": 235}
_MPOL_DEFAULT, _MPOL_BIND = 0, 2
_PR_SET_PDEATHSIG = 1
_BIG_MIB = 128

Region = tuple[int, int]
libc = ctypes.CDLL(None, use_errno=True)
# Mappings and files stay open until the process ends.
kept: list[object] = []
# Regions whose content this process knows.
known: list[Region] = []


def address_of(area: mmap.mmap) -> int:
    """Return the address of a mapping."""
    view = ctypes.c_char.from_buffer(area)
    kept.append(view)
    return ctypes.addressof(view)


def touch(area: mmap.mmap, first: int = 0, size: int | None = None) -> None:
    """Write to each page."""
    for at in range(first, first + (len(area) if size is None else size), PAGE):
        area[at] = 1


def private(pages: int = PAGES) -> tuple[mmap.mmap, Region]:
    """Map small pages, and touch each."""
    area = mmap.mmap(-1, pages * PAGE, flags=PRIVATE)
    area.madvise(_MADV_NOHUGEPAGE)
    touch(area)
    kept.append(area)
    return area, (address_of(area), pages)


def checked(result: int, what: str) -> int:
    """Raise the error of a system call."""
    if result < 0:
        raise OSError(ctypes.get_errno(), what)
    return result


def iovec(start: int, size: int) -> ctypes.Array[ctypes.c_ulong]:
    """Make one struct iovec."""
    return (ctypes.c_ulong * 2)(start, size)


def large(size: int, bytes_each: int) -> Region:
    """Map memory for large folios, at a multiple of their size."""
    area = mmap.mmap(-1, size + bytes_each, flags=PRIVATE)
    start = address_of(area)
    skip = -start % bytes_each
    area.madvise(_MADV_HUGEPAGE)
    touch(area, skip, size)
    kept.append(area)
    return start + skip, size // PAGE


def zero(_file: Path) -> Region:
    """Read pages that nobody has written."""
    area = mmap.mmap(-1, PAGES * PAGE, flags=PRIVATE)
    area.madvise(_MADV_NOHUGEPAGE)
    assert not any(area[at] for at in range(0, len(area), PAGE))
    kept.append(area)
    return address_of(area), PAGES


def untouched(_file: Path) -> Region:
    """Reserve addresses."""
    area = mmap.mmap(-1, PAGES * PAGE, flags=PRIVATE)
    kept.append(area)
    return address_of(area), PAGES


def shmem(_file: Path) -> Region:
    """Map shared memory that no other process maps."""
    area = mmap.mmap(-1, PAGES * PAGE)
    area.madvise(_MADV_NOHUGEPAGE)
    touch(area)
    kept.append(area)
    return address_of(area), PAGES


def file(path: Path) -> Region:
    """Map a file whose pages are on the disk, too."""
    path.write_bytes(b"x" * PAGES * PAGE)
    os.sync()
    with path.open("r+b") as stream:
        area = mmap.mmap(stream.fileno(), PAGES * PAGE)
    assert all(area[at] == ord("x") for at in range(0, len(area), PAGE))
    kept.append(area)
    return address_of(area), PAGES


def hugetlb(_file: Path) -> Region:
    """Map pages of the pool."""
    area = mmap.mmap(-1, 2 * HUGE, flags=PRIVATE | _MAP_HUGETLB)
    touch(area)
    kept.append(area)
    return address_of(area), 2 * HUGE // PAGE


def shared(_file: Path) -> Region:
    """Map pages that a child maps, too."""
    area, region = private()
    pid = os.fork()
    if pid == 0:
        libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        time.sleep(3600)
        os._exit(0)
    assert area[0] == 1
    return region


def ring(_file: Path) -> Region:
    """Register pages as a buffer of an io_uring."""
    _, region = private()
    parameters = (ctypes.c_uint * 30)()
    number = checked(
        libc.syscall(_IO_URING_SETUP, 4, ctypes.byref(parameters)), "io_uring_setup"
    )
    vector = iovec(region[0], region[1] * PAGE)
    # IORING_REGISTER_BUFFERS is 0.
    checked(
        libc.syscall(_IO_URING_REGISTER, number, 0, ctypes.byref(vector), 1),
        "io_uring_register",
    )
    return region


def pipe(_file: Path) -> Region:
    """Put pages into a pipe; they are pinned until another process reads them."""
    _, region = private(8)
    ends = os.pipe()
    kept.append(ends)
    vector = iovec(region[0], region[1] * PAGE)
    done = checked(libc.vmsplice(ends[1], ctypes.byref(vector), 1, 0), "vmsplice")
    assert done == region[1] * PAGE
    return region


def secret(_file: Path) -> Region:
    """Map secret memory."""
    number = checked(libc.syscall(_MEMFD_SECRET, 0), "memfd_secret")
    os.ftruncate(number, 8 * PAGE)
    area = mmap.mmap(number, 8 * PAGE)
    touch(area)
    kept.append(area)
    return address_of(area), 8


def swapped(_file: Path) -> Region:
    """Write pages to the swap area."""
    area, region = private()
    area.madvise(_MADV_PAGEOUT)
    return region


def locked(_file: Path) -> Region:
    """Lock pages in memory, which does not keep them on their node."""
    _, region = private()
    pages = ctypes.c_size_t(region[1] * PAGE)
    checked(libc.mlock(ctypes.c_void_p(region[0]), pages), "mlock")
    return region


def content(region: Region) -> bytes:
    """Return bytes that no other region or process has."""
    made = random.Random(f"{os.getpid()} {region[0]}")
    return made.randbytes(region[1] * PAGE)


def written(region: Region) -> Region:
    """Fill a region with its content."""
    data = content(region)
    ctypes.memmove(region[0], data, len(data))
    known.append(region)
    return region


def verify() -> dict[str, object]:
    """Compare each byte, and count those that differ."""
    wrong = 0
    for region in known:
        seen, right = ctypes.string_at(region[0], region[1] * PAGE), content(region)
        # An emulated CPU takes a second to compare a megabyte byte by byte.
        if seen != right:
            wrong += sum(a != b for a, b in zip(seen, right, strict=True))
    return {"regions": len(known), "wrong_bytes": wrong}


def bind(mode: int, nodes: int) -> dict[str, object]:
    """Set the memory policy of these regions, without a move."""
    mask = ctypes.c_ulong(nodes)
    for start, pages in known:
        result = libc.syscall(
            _MBIND[platform.machine()],
            ctypes.c_ulong(start),
            ctypes.c_ulong(pages * PAGE),
            mode,
            ctypes.byref(mask) if nodes else None,
            ctypes.c_ulong(64),
            0,
        )
        checked(result, "mbind")
    return {}


# The child of `shared` also shares regions that exist before it, so it comes first.
REGIONS: dict[str, Callable[[Path], Region]] = {
    "shared": shared,
    "anonymous": lambda _file: private()[1],
    "big": lambda _file: private(_BIG_MIB * MIB // PAGE)[1],
    "huge": lambda _file: large(2 * HUGE, HUGE),
    "mthp": lambda _file: large(MIB, 64 * 1024),
    "content": lambda _file: written(private(4 * PAGES)[1]),
    "content huge": lambda _file: written(large(2 * HUGE, HUGE)),
    "zero": zero,
    "untouched": untouched,
    "shmem": shmem,
    "file": file,
    "hugetlb": hugetlb,
    "ring": ring,
    "pipe": pipe,
    "secret": secret,
    "swapped": swapped,
    "locked": locked,
}


class Mapper:
    """A thread that maps and unmaps 64 KiB, and notes when it began and ended."""

    def __init__(self) -> None:
        self.waits: list[tuple[int, int]] = []
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        while not self._stop.is_set():
            begin = time.monotonic_ns()
            area = mmap.mmap(-1, 64 * 1024, flags=PRIVATE)
            area[0] = 1
            area.close()
            self.waits.append((begin, time.monotonic_ns()))
            time.sleep(0.0005)

    def end(self) -> dict[str, list[tuple[int, int]]]:
        """Stop, and return the begin and the end of each time."""
        self._stop.set()
        self._thread.join()
        return {"waits": self.waits}


def say(document: object) -> None:
    """Print one line."""
    sys.stdout.write(f"{json.dumps(document)}\n")
    sys.stdout.flush()


def main(words: Sequence[str]) -> None:
    """Make the named regions, and obey."""
    # All memory comes from the node of this CPU.
    os.sched_setaffinity(0, {0})
    path = Path(words[0])
    say({name: REGIONS[name](path) for name in words[1:]})
    mapping: Mapper | None = None
    orders: dict[str, Callable[[], dict[str, object]]] = {
        "verify": verify,
        "bind to 1": lambda: bind(_MPOL_BIND, 1 << 1),
        "unbind": lambda: bind(_MPOL_DEFAULT, 0),
    }
    for line in sys.stdin:
        word = line.strip()
        answer: Mapping[str, object] = {}
        if word in orders:
            answer = orders[word]()
        elif word == "map":
            # The mover keeps one CPU busy, so the thread needs the other one.
            os.sched_setaffinity(0, os.sched_getaffinity(1) or {0})
            mapping = Mapper()
        elif mapping is not None:
            answer = mapping.end()
        say(answer)


if __name__ == "__main__":
    main(sys.argv[1:])
