# SPDX-License-Identifier: GPL-2.0-only
"""NUMA nodes and memory tiers."""

from __future__ import annotations

import re
from dataclasses import dataclass

from pageferry.sysfs.files import Files
from pageferry.units import parse_cpus, parse_nodes

_NODES = "/sys/devices/system/node"
_TIERS = "/sys/devices/virtual/memory_tiering"


@dataclass(frozen=True)
class Node:
    """A node as the kernel shows it."""

    number: int
    cpus: str
    total_bytes: int
    free_bytes: int
    tier: int | None


def read_nodes(files: Files) -> list[Node]:
    """Read all nodes."""
    tiers = _read_tiers(files)
    found = []
    for name in files.names(_NODES):
        match = re.fullmatch(r"node(\d+)", name)
        if match is None:
            continue
        number = int(match[1])
        memory = files.read_or(f"{_NODES}/{name}/meminfo", "")
        found.append(
            Node(
                number=number,
                cpus=files.read_or(f"{_NODES}/{name}/cpulist", ""),
                total_bytes=_meminfo(memory, "MemTotal"),
                free_bytes=_meminfo(memory, "MemFree"),
                tier=tiers.get(number),
            )
        )
    return sorted(found, key=lambda node: node.number)


def nodes_of_cpus(files: Files) -> dict[int, int]:
    """Return the node of each CPU."""
    return {
        cpu: node.number
        for node in read_nodes(files)
        if node.cpus
        for cpu in parse_cpus(node.cpus)
    }


def _meminfo(text: str, key: str) -> int:
    match = re.search(rf"{key}:\s*(\d+) kB", text)
    return int(match[1]) * 1024 if match else 0


def _read_tiers(files: Files) -> dict[int, int]:
    tiers: dict[int, int] = {}
    for name in files.names(_TIERS):
        match = re.fullmatch(r"memory_tier(\d+)", name)
        nodes = files.read_or(f"{_TIERS}/{name}/nodelist", "").strip()
        if match is not None and nodes:
            tiers.update(dict.fromkeys(parse_nodes(nodes), int(match[1])))
    return tiers
