# SPDX-License-Identifier: GPL-2.0-only
"""move_pages(2), the exchange of two folios, and the free memory of nodes."""

from __future__ import annotations

import ctypes
import errno
import os
import platform
import re
from array import array
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from pageferry.errors import ExitCode, PageferryError, unsupported
from pageferry.sysfs import memory, processes
from pageferry.sysfs.files import Files

_MPOL_MF_MOVE = 1 << 1
_MPOL_MF_MOVE_ALL = 1 << 2
_SYSCALL = {"x86_64": 279, "aarch64": 239}
# The status of a page that the kernel did not reach.
UNTRIED = -errno.E2BIG
# include/uapi/asm-generic/errno.h; Python has no name for it.
EHWPOISON = 133
# Documentation/ABI/testing/debugfs-migrate_exchange: the errors of a pair that stays.
_STAYS = frozenset(
    {
        *(errno.EAGAIN, errno.EBUSY, EHWPOISON),
        *(errno.EINVAL, errno.ENXIO, errno.EOPNOTSUPP),
    }
)


class PageMover(Protocol):
    """Moves pages of processes, or looks up their nodes."""

    def query(self, pid: int, addresses: Sequence[int]) -> Sequence[int]:
        """Return the node of each page, or a negative error number."""

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Move pages to a node; returns 0, UNTRIED or an error number for each."""


class MovePages:
    """The system call."""

    def __init__(self, files: Files, *, shared: bool = True) -> None:
        """Choose whether pages that several processes map move, too, as with DAMON."""
        self.files = files
        self._flag = _MPOL_MF_MOVE_ALL if shared else _MPOL_MF_MOVE
        self._libc = ctypes.CDLL(None, use_errno=True)
        machine = platform.machine()
        if machine not in _SYSCALL:
            raise unsupported("move_pages(2) is not known here", machine)
        self._number = _SYSCALL[machine]

    def query(self, pid: int, addresses: Sequence[int]) -> Sequence[int]:
        """Look up the nodes of pages."""
        return self._call(pid, addresses, None)[1]

    def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        """Move pages; an error of the call becomes the status of untried pages."""
        failed, statuses = self._call(pid, addresses, node)
        return [
            failed if status == UNTRIED and failed else min(status, 0)
            for status in statuses
        ]

    def _call(
        self, pid: int, addresses: Sequence[int], node: int | None
    ) -> tuple[int, list[int]]:
        count = len(addresses)
        if not count:
            return 0, []
        pages = array("Q", addresses)
        statuses = array("i", [UNTRIED]) * count
        nodes = None if node is None else array("i", [node]) * count
        result = self._libc.syscall(
            ctypes.c_long(self._number),
            ctypes.c_long(pid),
            ctypes.c_ulong(count),
            ctypes.c_void_p(pages.buffer_info()[0]),
            ctypes.c_void_p(nodes.buffer_info()[0] if nodes is not None else None),
            ctypes.c_void_p(statuses.buffer_info()[0]),
            ctypes.c_int(0 if nodes is None else self._flag),
        )
        failed = ctypes.get_errno() if result == -1 else 0
        if failed:
            self._raise(pid, failed, node)
        return -failed, statuses.tolist()

    def _raise(self, pid: int, failed: int, node: int | None) -> None:
        """Raise an error that concerns all pages."""
        process = processes.find(self.files, pid)
        # An exiting process loses its memory some time before its state changes.
        if failed == errno.ESRCH or (
            failed == errno.EINVAL and (process is None or not process.kernel_thread)
        ):
            raise processes.ended(pid, "its memory is freed")
        if failed == errno.ENOSYS:
            raise unsupported(
                "this kernel has no move_pages(2)",
                reason="it lacks CONFIG_NUMA or CONFIG_MIGRATION",
            )
        if failed == errno.EINVAL:
            raise PageferryError(
                "a kernel thread has no memory of its own",
                value=str(pid),
                code=ExitCode.USAGE,
            )
        if failed == errno.EPERM:
            raise PageferryError(
                "may not move pages of this process",
                value=str(pid),
                reason="it belongs to another user",
                hint="run it as root",
            )
        if failed in (errno.EACCES, errno.ENODEV):
            raise PageferryError(
                "the process may not have memory on this node",
                value=f"node {node}",
                reason="its cpuset (cpuset.mems of its cgroup) excludes the node"
                if failed == errno.EACCES
                else os.strerror(failed),
                hint=f"grep Mems_allowed_list /proc/{pid}/status",
            )


class ExchangeFile:
    """The kernel's file that exchanges the folios of two page frames."""

    def __init__(self, files: Files) -> None:
        """Make sure that the file is there, and that this user may write to it."""
        self.path = files.path(memory.EXCHANGE)
        try:
            os.close(self._open())
        except FileNotFoundError as error:
            reason = "debugfs is not mounted there"
            hint = f"mount -t debugfs none {self.path.parent}"
            if files.names("/sys/kernel/debug"):
                reason = "this kernel has no CONFIG_MIGRATE_EXCHANGE"
                hint = "pageferry kernel build makes a kernel that has it"
            raise unsupported(
                "no exchange of pages", self.path, reason, hint
            ) from error
        except OSError as error:
            raise self._failed(error) from error

    def exchange(self, first: int, second: int) -> int:
        """Return 0, or the number of an error that left both folios in place."""
        try:
            handle = self._open()
            try:
                os.write(handle, f"{first} {second}\n".encode())
            finally:
                os.close(handle)
        except OSError as error:
            if error.errno not in _STAYS:
                raise self._failed(error) from error
            return error.errno or 0
        return 0

    def _open(self) -> int:
        return os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)

    def _failed(self, error: OSError) -> PageferryError:
        hints = {
            errno.EACCES: "run it as root",
            errno.EPERM: "run it as root; a kernel in lockdown forbids it to root, too",
        }
        return PageferryError(
            "cannot exchange pages",
            value=self.path,
            reason=error.strerror,
            hint=hints.get(error.errno or 0),
        )


@dataclass(frozen=True)
class Room:
    """Free memory of a node that a move may use without reclaim."""

    # By zone: free blocks of each order, and the pages that must stay free.
    zones: tuple[tuple[tuple[int, ...], int], ...] = field(default=())

    def folios(self, order: int) -> int:
        """Count the folios of an order that fit.

        Only free blocks of that size count: Linux would split a folio without one.
        """
        fitting = 0
        for blocks, reserve in self.zones:
            free = sum(count << at for at, count in enumerate(blocks))
            whole = sum(
                count << (at - order) for at, count in enumerate(blocks) if at >= order
            )
            fitting += min(whole, max(free - reserve, 0) >> order)
        return fitting


def read_room(files: Files) -> dict[int, Room]:
    """Read the free memory of all nodes; empty if the kernel does not show it."""
    reserves = _reserves(files.read_or("/proc/zoneinfo", ""))
    zones: dict[int, list[tuple[tuple[int, ...], int]]] = {}
    for line in files.read_or("/proc/buddyinfo", "").splitlines():
        match = re.fullmatch(r"Node (\d+), zone\s+(\S+)\s+([\d\s]+)", line)
        # Linux keeps the DMA zone, the first 16 MiB, for old devices.
        if match is not None and match[2] != "DMA":
            blocks = tuple(map(int, match[3].split()))
            node = int(match[1])
            zones.setdefault(node, []).append((blocks, reserves[node, match[2]]))
    return {node: Room(tuple(found)) for node, found in zones.items()}


def _reserves(text: str) -> dict[tuple[int, str], int]:
    """Read the pages that each zone keeps free: high watermark and protection."""
    found = _Reserves()
    here = (-1, "")
    for line in text.splitlines():
        if match := re.match(r"Node (\d+), zone\s+(\S+)", line):
            here = (int(match[1]), match[2])
        elif match := re.match(r"\s+high\s+(\d+)", line):
            # The line of the per-CPU lists is "high:", and does not match.
            found[here] = found.get(here, 0) + int(match[1])
        elif match := re.match(r"\s+protection: \(([\d, ]+)\)", line):
            found[here] = found.get(here, 0) + max(map(int, match[1].split(",")))
    return found


class _Reserves(dict[tuple[int, str], int]):
    """Reserves by zone; a zone without an entry keeps nothing."""

    def __missing__(self, key: tuple[int, str]) -> int:
        return 0
