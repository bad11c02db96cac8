# SPDX-License-Identifier: GPL-2.0-only
"""Checks of a topology's nodes, before QEMU or Linux rejects them less clearly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from pageferry.errors import PageferryError
from pageferry.units import MIB, format_nodes, parse_cpus, parse_size
from pageferry.vm.numa import BLOCK_BYTES, Node, has_hmat, numbered

# CONFIG_NODES_SHIFT of x86-64 allows 64 nodes.
MAX_NODE = 63
# ACPI reserves smaller values, and 255 for a node that cannot be reached.
_NEAREST, _FARTHEST = 10, 254


def first_fault(nodes: Sequence[Node], cpus: int) -> str | None:
    """Return the first fault of the nodes of a machine; None if there is none."""
    if not nodes:
        return "it has no [[node]]"
    found = numbered(nodes)
    return next(_faults(nodes, found, cpus), None)


def _faults(
    nodes: Sequence[Node], found: Mapping[int, Node], cpus: int
) -> Iterator[str]:
    numbers = list(found)
    if len(found) < len(nodes) or numbers != sorted(numbers):
        yield "each node's number has to be larger than that of the node before"
    if numbers[0] != 0:
        yield "the first node has to have number 0: the kernel boots from its memory"
    if numbers[-1] > MAX_NODE:
        yield f"node {numbers[-1]}: the largest number is {MAX_NODE}"
    for number, node in found.items():
        faults = (*_faults_of(node, found), *_faults_of_speed(node, found))
        yield from (f"node {number}: {text}" for text in faults)
    if not found[0].boot_bytes:
        yield "node 0: without memory the kernel cannot boot"
    yield from _faults_of_cpus(found, cpus)
    yield from _faults_of_order(found)
    if has_hmat(found):
        yield from _faults_of_hmat(found)


def _faults_of_order(found: Mapping[int, Node]) -> Iterator[str]:
    """Linux numbers nodes as the SRAT names them, and the SRAT begins with CPUs."""
    first = {n: parse_cpus(node.cpus)[0] for n, node in found.items() if node.cpus}
    for wanted, number in enumerate(sorted(first, key=first.__getitem__)):
        if number != wanted:
            yield (
                f"node {number}: Linux would number it {wanted}, as it numbers nodes "
                "with cpus first, in the order of their CPUs"
            )


def _faults_of(node: Node, found: Mapping[int, Node]) -> Iterator[str]:
    if node.memory is None and node.cpus is None:
        yield "it has neither memory nor cpus; leave the number out for a gap"
    if node.hotplug and node is not found[max(found)]:
        yield "only the last node can have hotplug: QEMU's firmware announces no other"
    if node.hotplug and (node.memory is None or node.cpus is not None):
        yield "a node with hotplug has memory and no cpus"
    if node.memory is not None:
        block_bytes = BLOCK_BYTES if node.hotplug else MIB
        yield from _faults_of_memory(node.memory, block_bytes)


def _faults_of_speed(node: Node, found: Mapping[int, Node]) -> Iterator[str]:
    if (node.latency_ns is None) != (node.bandwidth_mib_s is None):
        yield "latency_ns and bandwidth_mib_s belong together"
    speed = (node.latency_ns, node.bandwidth_mib_s)
    if any(figure is not None and figure < 1 for figure in speed):
        yield "latency_ns and bandwidth_mib_s have to be positive"
    if node.memory is None and node.latency_ns is not None:
        yield "it has latency_ns and no memory"
    if node.initiator is not None:
        target = found.get(node.initiator)
        if target is None or target.cpus is None:
            yield f"its initiator {node.initiator} is no node with cpus"


def _faults_of_memory(text: str, block_bytes: int) -> Iterator[str]:
    try:
        size = parse_size(text)
    except PageferryError as error:
        yield f"{error.what}: {text}"
        return
    if not size or size % block_bytes:
        yield f"memory has to be a multiple of {block_bytes // MIB}M: {text}"


def _faults_of_cpus(found: Mapping[int, Node], cpus: int) -> Iterator[str]:
    """Every CPU has to be on one node, or QEMU chooses a node for it."""
    seen: Counter[int] = Counter()
    for number, node in found.items():
        try:
            seen.update(parse_cpus(node.cpus) if node.cpus is not None else ())
        except PageferryError as error:
            yield f"node {number}: {error.what}: {node.cpus}"
            return
    twice = [cpu for cpu, times in seen.items() if times > 1]
    if twice:
        yield f"CPUs on two nodes: {format_nodes(twice)}"
    beyond = [cpu for cpu in seen if cpu >= cpus]
    if beyond:
        yield f"CPUs that do not exist: {format_nodes(beyond)}; cpus = {cpus}"
    missing = [cpu for cpu in range(cpus) if cpu not in seen]
    if missing:
        yield f"CPUs on no node: {format_nodes(missing)}; cpus = {cpus}"


def _faults_of_hmat(found: Mapping[int, Node]) -> Iterator[str]:
    for number, node in found.items():
        if node.memory is not None and node.latency_ns is None:
            yield (
                f"node {number}: all nodes with memory or none need latency_ns and "
                "bandwidth_mib_s"
            )
        if node.cpus is None and node.initiator is None:
            yield f"node {number}: without cpus, HMAT needs its initiator"


def fault_of_distances(
    nodes: Sequence[Node], distances: Sequence[Sequence[int]]
) -> str | None:
    """Return the first fault of a matrix of distances; None if there is none."""
    size = len(nodes)
    if [len(row) for row in distances] != [size] * size:
        return f"distances needs {size} rows with {size} numbers"
    for at, row in enumerate(distances):
        for to, far in enumerate(row):
            own = at == to
            if own and far != _NEAREST:
                return f"distances: row {at + 1}: a node's own distance is {_NEAREST}"
            if not own and not _NEAREST < far <= _FARTHEST:
                return (
                    f"distances: row {at + 1}: {far} is not between "
                    f"{_NEAREST + 1} and {_FARTHEST}"
                )
    return None
