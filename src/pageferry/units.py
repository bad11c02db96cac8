# SPDX-License-Identifier: GPL-2.0-only
"""Parse and format sizes, times, rates and node lists."""

from __future__ import annotations

import re
from collections.abc import Iterable

from pageferry.errors import usage_error

KIB = 1024
MIB = 1024 * KIB
GIB = 1024 * MIB
TIB = 1024 * GIB
# The sizes that an entry of a page table maps: in the last level, and above it.
BASE_BYTES = 4 * KIB
PMD_BYTES = 2 * MIB

_SIZE = re.compile(r"(\d+)\s*([kmgt]?)(i?b)?", re.IGNORECASE | re.ASCII)
_SCALE = {"": 1, "k": KIB, "m": MIB, "g": GIB, "t": TIB}
_TIME = re.compile(r"(\d+(?:\.\d+)?)\s*(ns|us|ms|s|m|h)?", re.ASCII)
_SECONDS = {
    "ns": 1e-9,
    "us": 1e-6,
    "ms": 1e-3,
    "s": 1.0,
    "m": 60.0,
    "h": 3600.0,
}
MAX_BYTES = (1 << 63) - 1
# MAX_NUMNODES of the largest kernels that distributions ship.
MAX_NODES = 1024


def parse_size(text: str) -> int:
    """Parse 4096, 64K, 2MiB, 1g. All suffixes are powers of 1024."""
    match = _SIZE.fullmatch(text.strip())
    value = int(match[1]) * _SCALE[match[2].lower()] if match else -1
    if match is None or (match[3] and match[3].lower() == "ib" and not match[2]):
        raise usage_error("not a size", text, "write a number with K, M or G: 64K, 2M")
    if value > MAX_BYTES:
        raise usage_error("size too large", text, "the largest is 2^63 - 1 bytes")
    return value


def format_size(value_bytes: int) -> str:
    """Format a size in its largest unit, with two decimals unless it is whole."""
    if value_bytes < 0:
        return "-" + format_size(-value_bytes)
    for name, scale in (("TiB", TIB), ("GiB", GIB), ("MiB", MIB), ("KiB", KIB)):
        if value_bytes >= scale:
            if value_bytes % scale == 0:
                return f"{value_bytes // scale} {name}"
            return f"{value_bytes / scale:.2f} {name}"
    return f"{value_bytes} B"


def parse_seconds(text: str) -> float:
    """Parse 90, 90s, 1.5m, 250ms as seconds."""
    match = _TIME.fullmatch(text.strip())
    if match is None:
        raise usage_error("not a time", text, "write seconds, or 500ms, 90s, 10m")
    return float(match[1]) * _SECONDS[match[2] or "s"]


def format_rate(bytes_per_s: float) -> str:
    """Format a rate in GB/s (1e9 bytes per second)."""
    return f"{bytes_per_s / 1e9:.2f} GB/s"


def parse_nodes(text: str, present: Iterable[int] | None = None) -> list[int]:
    """Parse a node list of numactl: 0-3,5, all, !1."""
    here = None if present is None else sorted(set(present))
    body = text.strip()
    inverted = body.startswith("!")
    if inverted:
        body = body[1:]
    if (inverted or body == "all") and here is None:
        raise usage_error("node list with `all` or `!` is not possible here", text)
    nodes = set(here or []) if body == "all" else _parse_ranges(body, text)
    if here is not None:
        absent = sorted(nodes - set(here))
        if absent:
            raise usage_error(
                f"no such node: {format_nodes(absent)}",
                text,
                f"nodes here: {format_nodes(here)}",
            )
        if inverted:
            nodes = set(here) - nodes
    if not nodes:
        raise usage_error("node list is empty", text)
    return sorted(nodes)


def _parse_ranges(body: str, text: str) -> set[int]:
    nodes: set[int] = set()
    for part in body.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip(), re.ASCII)
        if match is None:
            raise usage_error("not a node list", text, "write it as 0-3,5 or all")
        first = int(match[1])
        last = int(match[2]) if match[2] else first
        if last < first or last >= MAX_NODES:
            raise usage_error("not a range of nodes", part.strip())
        nodes.update(range(first, last + 1))
    return nodes


def parse_cpus(text: str) -> list[int]:
    """Parse a list of CPUs: 0-3,8-11."""
    cpus: list[int] = []
    for part in text.split(","):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part.strip(), re.ASCII)
        first = int(match[1]) if match else 0
        last = int(match[2] or match[1]) if match else -1
        if last < first:
            raise usage_error("not a list of CPUs", text, "write it as 0-3,8-11")
        cpus += range(first, last + 1)
    return cpus


def format_nodes(nodes: Iterable[int]) -> str:
    """Format a node list like the kernel's %*pbl: 0-3,5."""
    parts: list[str] = []
    run: list[int] = []
    for node in sorted(set(nodes)):
        if run and node == run[-1] + 1:
            run.append(node)
            continue
        if run:
            parts.append(_format_run(run))
        run = [node]
    if run:
        parts.append(_format_run(run))
    return ",".join(parts)


def _format_run(run: list[int]) -> str:
    return str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}"


def whole(option: str, text: str, low: int, high: int) -> int:
    """Parse a whole number between two bounds."""
    if not (text.isascii() and text.isdigit()) or not low <= int(text) <= high:
        raise usage_error(f"{option} needs a number from {low} to {high}", text)
    return int(text)
