# SPDX-License-Identifier: GPL-2.0-only
"""Counters of memory controllers, by perf_event_open(2).

The module uses counters that the kernel describes in sysfs with their unit, such as
uncore_imc's cas_count_read. Each counts for the node of the CPU that reads it.
"""

from __future__ import annotations

import ctypes
import os
import platform
import re
import struct
from collections.abc import Iterable

from pageferry.errors import ExitCode, from_os_error
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import nodes_of_cpus
from pageferry.units import KIB, MIB, format_nodes, parse_cpus

_DEVICES = "/sys/bus/event_source/devices"
_SYSCALL = {"x86_64": 298, "aarch64": 241}
_EVENTS = ("cas_count_read", "cas_count_write", "data_read", "data_write")
_UNITS = {"MiB": MIB, "KiB": KIB, "Bytes": 1, "64Bytes": 64}
# The first version of struct perf_event_attr: 64 bytes.
_ATTR = struct.Struct("<IIQQQQQIIQ")


def events(files: Files) -> list[tuple[str, str]]:
    """List devices and their events that count memory traffic."""
    return [
        (device, event)
        for device in files.names(_DEVICES)
        for event in _EVENTS
        if files.read_or(f"{_DEVICES}/{device}/events/{event}.unit", "") in _UNITS
    ]


def obstacle(files: Files, wanted: Iterable[int] = ()) -> str | None:
    """Return the reason why perf cannot be used; None if it can.

    wanted: the nodes whose traffic the counters must show. The kernel tells only the
    CPU of a memory controller, so a node without CPUs is not visible.
    """
    if platform.machine() not in _SYSCALL:
        return f"not known on {platform.machine()}"
    found = events(files)
    if not found:
        return "the kernel shows no counters of memory controllers"
    nodes = nodes_of_cpus(files)
    seen = {
        nodes.get(cpu, 0)
        for device, _ in found
        for cpu in parse_cpus(files.read_or(f"{_DEVICES}/{device}/cpumask", "0"))
    }
    hidden = sorted(set(wanted) - seen)
    if hidden:
        return f"no memory controller counts for node {format_nodes(hidden)}"
    return None if os.geteuid() == 0 else "only root may read them"


def config_of(files: Files, device: str, text: str) -> int:
    """Turn event=0x04,umask=0x03 into perf_event_attr.config."""
    config = 0
    for term in text.strip().split(","):
        name, _, value = term.partition("=")
        layout = files.read_or(f"{_DEVICES}/{device}/format/{name}", "config:0-63")
        match = re.fullmatch(r"config:(\d+)(?:-(\d+))?", layout)
        if match is not None:
            config |= int(value or "1", 0) << int(match[1])
    return config


class Counters:
    """All counters of memory controllers, opened."""

    def __init__(self, files: Files) -> None:
        self.files = files
        libc = ctypes.CDLL(None, use_errno=True)
        nodes = nodes_of_cpus(files)
        # For each counter: its descriptor, its node, and the bytes of one count.
        self._open: list[tuple[int, int, float]] = []
        try:
            for device, event in events(files):
                self._add(libc, nodes, device, event)
        except BaseException:
            self.close()
            raise

    def _add(
        self, libc: ctypes.CDLL, nodes: dict[int, int], device: str, event: str
    ) -> None:
        top = f"{_DEVICES}/{device}"
        config = config_of(self.files, device, self.files.read(f"{top}/events/{event}"))
        unit = _UNITS[self.files.read(f"{top}/events/{event}.unit")]
        scale = float(self.files.read_or(f"{top}/events/{event}.scale", "1")) * unit
        kind = int(self.files.read(f"{top}/type"))
        attr = _ATTR.pack(kind, _ATTR.size, config, 0, 0, 0, 0, 0, 0, 0)
        for cpu in parse_cpus(self.files.read_or(f"{top}/cpumask", "0")):
            handle = libc.syscall(
                ctypes.c_long(_SYSCALL[platform.machine()]),
                ctypes.c_char_p(attr),
                ctypes.c_int(-1),
                ctypes.c_int(cpu),
                ctypes.c_int(-1),
                ctypes.c_ulong(0),
            )
            if handle < 0:
                number = ctypes.get_errno()
                error = OSError(number, os.strerror(number), f"{device}/{event}")
                raise from_os_error(error, "cannot count", ExitCode.FAILED) from error
            self._open.append((handle, nodes.get(cpu, 0), scale))

    def count(self) -> dict[int, float]:
        """Return the bytes counted so far, by node."""
        found: dict[int, float] = {}
        for handle, node, scale in self._open:
            (value,) = struct.unpack("<Q", os.read(handle, 8))
            found[node] = found.get(node, 0.0) + value * scale
        return found

    def close(self) -> None:
        """Close all counters."""
        for handle, _, _ in self._open:
            os.close(handle)
        self._open = []
