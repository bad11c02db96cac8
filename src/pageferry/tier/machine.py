# SPDX-License-Identifier: GPL-2.0-only
"""The tiers, pressure and memory of a machine, as the kernel shows them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from pageferry.errors import unsupported, usage_error
from pageferry.sysfs import memory, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import nodes_of_cpus, read_nodes
from pageferry.sysfs.pagebits import PAGE
from pageferry.tier.plan import Range, merge
from pageferry.units import format_nodes

_BLOCKS = "/sys/devices/system/memory"
_WAITED = "/sys/kernel/mm/migrate_offload/stats/reasons/damon/waited_sum_ns"
# The bit of NUMA balancing's mode for tiers.
_TIERING = 2


def find_tiers(files: Files, said: Sequence[Sequence[int]]) -> list[int]:
    """Return the node of each tier, the fastest first: as configured, or the kernel's.

    A tier has one node. A scheme with several destinations would also move memory
    between them, from one socket to the other. By physical address, Linux ignores all
    but one.
    """
    nodes = [node for node in read_nodes(files) if node.total_bytes]
    here = {node.number for node in nodes}
    if said:
        absent = sorted({n for tier in said for n in tier} - here)
        if absent:
            raise usage_error(f"no such node: {format_nodes(absent)}", "tiers")
        return [node for (node,) in said]
    by_tier: dict[int, list[int]] = {}
    for node in nodes:
        if node.tier is not None:
            by_tier.setdefault(node.tier, []).append(node.number)
    if len(by_tier) < 2:
        raise unsupported(
            "this machine has one memory tier",
            reason="/sys/devices/virtual/memory_tiering shows no second one",
            hint="tiers = [[0], [1]] in the configuration",
        )
    # The kernel gives faster memory the smaller number.
    found = [by_tier[tier] for tier in sorted(by_tier)]
    if any(len(tier) > 1 for tier in found):
        raise unsupported(
            "a memory tier of this machine has several nodes",
            f"tiers = {found}",
            "DAMON would move memory between them, too",
            f"name one node for each tier: tiers = {[tier[:1] for tier in found]}",
        )
    return [node for (node,) in found]


def free_and_total(files: Files) -> tuple[dict[int, int], dict[int, int]]:
    """Return the free bytes and all bytes of each node.

    Free memory that the kernel keeps for itself does not count. A migration gets none of
    it, and below that mark reclaim begins.
    """
    nodes = read_nodes(files)
    usable = _usable(files.read_or("/proc/zoneinfo", ""))
    return (
        {
            n.number: min(usable.get(n.number, n.free_bytes), n.free_bytes)
            for n in nodes
        },
        {node.number: node.total_bytes for node in nodes},
    )


def _usable(zoneinfo: str) -> dict[int, int]:
    """Return the free bytes of each node above the high watermarks of its zones."""
    found: dict[int, int] = {}
    for zone in re.split(r"^(?=Node )", zoneinfo, flags=re.M):
        name = re.match(r"Node (\d+), zone", zone)
        free = re.search(r"^ +pages free +(\d+)$", zone, re.M)
        high = re.search(r"^ +high +(\d+)$", zone, re.M)
        kept = re.search(r"^ +protection: \(([\d, ]+)\)$", zone, re.M)
        if name and free and high and kept:
            # The kernel keeps this part of a lower zone for requests that need it.
            most = int(high[1]) + max(map(int, kept[1].split(",")))
            node = int(name[1])
            more = max(int(free[1]) - most, 0) * PAGE
            found[node] = found.get(node, 0) + more
    return found


def ranges_of(files: Files, nodes: Iterable[int]) -> dict[int, list[Range]]:
    """Return the physical addresses of nodes. Both files need memory hotplug."""
    size = files.read_or(f"{_BLOCKS}/block_size_bytes", "")
    found = {}
    for node in nodes:
        names = files.names(f"/sys/devices/system/node/node{node}")
        blocks = [int(m[1]) for n in names if (m := re.fullmatch(r"memory(\d+)", n))]
        if not size or not blocks:
            raise unsupported(
                "the kernel does not show the addresses of a node",
                str(node),
                "it lacks CONFIG_MEMORY_HOTPLUG",
                "name the programs with [[process]]",
            )
        found[node] = merge(blocks, int(size, 16))
    return found


def kernel_promotes(files: Files) -> bool:
    """Say whether NUMA balancing promotes hot memory between tiers."""
    text = files.read_or(memory.BALANCING, "0")
    return text.isdecimal() and bool(int(text) & _TIERING)


def can_exchange(files: Files) -> bool:
    """Say whether DAMON exchanges hot and cold memory of two nodes that are full."""
    return files.exists(memory.EXCHANGE)


def waited_s(files: Files) -> float:
    """Return how long programs have waited for memory since boot.

    PSI counts the time in which any program waited. It does not count waits for a page
    that migrates. pageferry's kernel does, as the sum of all threads. A thread that waits
    for a page leaves its CPU, so the sum counts as time of one of all CPUs.
    """
    migration = files.read_or(_WAITED, "0")
    waited_ns = int(migration) if migration.isdecimal() else 0
    cpus = max(len(nodes_of_cpus(files)), 1)
    return memory.stalled_us(files) / 1e6 + waited_ns / 1e9 / cpus


def owner_keeps(files: Files, pid: int, nodes: Sequence[int]) -> str | None:
    """Return why all memory of a process may not use these nodes, if so."""
    allowed = processes.allowed_nodes(files, pid)
    outside = set(nodes) - allowed if allowed is not None else set()
    if outside:
        return f"the cpuset of process {pid} excludes node {format_nodes(outside)}"
    return None


def other_nodes(files: Files, pid: int, nodes: Sequence[int]) -> str | None:
    """Return why memory of a process may be on other nodes, if so.

    A scheme for virtual addresses would move hot memory of another socket, too.
    """
    here = {node.number for node in read_nodes(files) if node.total_bytes}
    others = here & (processes.allowed_nodes(files, pid) or set()) - set(nodes)
    if others:
        text = f"process {pid} may have memory on node {format_nodes(others)}"
        return f"{text}, which is in no tier (a cpuset helps)"
    return None


def ranges_from(files: Files, pid: int, starts: set[int]) -> list[Range]:
    """Return the addresses of the mappings that begin at these."""
    if not starts:
        return []
    text = files.read_if_there(f"/proc/{pid}/maps")
    areas = re.finditer(r"^([0-9a-f]+)-([0-9a-f]+) ", text, re.M)
    found = ((int(match[1], 16), int(match[2], 16)) for match in areas)
    return [(start, end) for start, end in found if start in starts]
