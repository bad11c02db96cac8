# SPDX-License-Identifier: GPL-2.0-only
"""The nodes of a virtual machine as QEMU's arguments.

QEMU's node numbers have no gaps. A number that the topology leaves out gets a node of
the least size, and a kernel parameter hides its memory. Linux then knows the number as
possible, and does not bring the node online.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from pageferry.units import GIB, MIB, parse_size

# Linux adds and removes memory in blocks of this size.
BLOCK_BYTES = 128 * MIB
# QEMU leaves the addresses from here to 4 GiB to PCI. q35 has two values.
_SMALL_MACHINE_BYTES = 0xB000_0000
_LOW_BYTES = 2 * GIB
_PCI_END = 4 * GIB
# QEMU's default, also for distances from and to a hidden node.
_LOCAL, _REMOTE = 10, 20


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A NUMA node; it may lack memory or CPUs."""

    memory: str | None = None
    cpus: str | None = None
    # Default: the number after that of the node before.
    number: int | None = None
    # The memory is a DIMM, which Linux adds after it has booted the rest.
    hotplug: bool = False
    initiator: int | None = None
    latency_ns: int | None = None
    bandwidth_mib_s: int | None = None

    @property
    def memory_bytes(self) -> int:
        """Return the size of the memory."""
        return 0 if self.memory is None else parse_size(self.memory)

    @property
    def boot_bytes(self) -> int:
        """Return the size of the memory that is there at boot."""
        return 0 if self.hotplug else self.memory_bytes


_HIDDEN = Node(memory=f"{BLOCK_BYTES // MIB}M")


def numbered(nodes: Sequence[Node]) -> dict[int, Node]:
    """Give each node its number."""
    found: dict[int, Node] = {}
    number = -1
    for node in nodes:
        number = number + 1 if node.number is None else node.number
        found[number] = node
    return found


def with_hidden(nodes: Mapping[int, Node]) -> dict[int, Node]:
    """Return all nodes of QEMU, in the order of their numbers."""
    return {n: nodes.get(n, _HIDDEN) for n in range(max(nodes) + 1)}


def hiding_words(nodes: Mapping[int, Node]) -> list[str]:
    """Return the kernel parameters that hide the memory between the nodes."""
    ram_bytes = sum(node.boot_bytes for node in with_hidden(nodes).values())
    low = ram_bytes if ram_bytes < _SMALL_MACHINE_BYTES else _LOW_BYTES
    hidden: list[list[int]] = []
    begin = 0
    for number, node in with_hidden(nodes).items():
        end = begin + node.boot_bytes
        if number not in nodes and hidden and hidden[-1][1] == begin:
            hidden[-1][1] = end
        elif number not in nodes:
            hidden.append([begin, end])
        begin = end
    parts = [
        part
        for first, last in hidden
        for part in (
            (first, min(last, low)),
            (max(first, low) - low + _PCI_END, last - low + _PCI_END),
        )
    ]
    return [
        f"memmap={(last - first) // MIB}M${first:#x}"
        for first, last in parts
        if last > first
    ]


def memory_args(nodes: Mapping[int, Node]) -> list[str]:
    """Return the arguments for the size of the memory."""
    boot = sum(node.boot_bytes for node in with_hidden(nodes).values())
    later = [node.memory_bytes for node in nodes.values() if node.hotplug]
    text = f"{boot // MIB}M"
    if later:
        text += f",slots={len(later)},maxmem={(boot + sum(later)) // MIB}M"
    return ["-m", text]


def node_args(nodes: Mapping[int, Node], *, preallocate: bool) -> list[str]:
    """Return the arguments for the nodes, their memory and their CPUs."""
    hmat = has_hmat(nodes)
    argv: list[str] = []
    dimms: list[str] = []
    for number, node in with_hidden(nodes).items():
        backend = f"memory-backend-ram,id=ram{number},size={node.memory_bytes}"
        # Otherwise the guest's first touch of a page causes a page fault of the host,
        # which a measurement would include.
        backend += ",prealloc=on" if preallocate and number in nodes else ""
        numa = f"node,nodeid={number}"
        numa += f",memdev=ram{number}" if node.boot_bytes else ""
        ranges = [] if node.cpus is None else node.cpus.split(",")
        numa += "".join(f",cpus={part.strip()}" for part in ranges)
        numa += f",initiator={initiator_of(number, nodes)}" if hmat else ""
        argv += ["-object", backend] if node.memory_bytes else []
        argv += ["-numa", numa]
        if node.hotplug:
            dimms += ["-device", f"pc-dimm,memdev=ram{number},node={number}"]
    return argv + (_hmat_args(nodes) if hmat else []) + dimms


def has_hmat(nodes: Mapping[int, Node]) -> bool:
    """Say whether the firmware tells how fast memory is."""
    return any(node.latency_ns is not None for node in nodes.values())


def initiator_of(number: int, nodes: Mapping[int, Node]) -> int:
    """Return the node whose CPUs use the memory of a node."""
    node = nodes.get(number)
    if node is not None and node.cpus is not None:
        return number
    if node is not None and node.initiator is not None:
        return node.initiator
    return min(n for n, other in nodes.items() if other.cpus is not None)


def _hmat_args(nodes: Mapping[int, Node]) -> list[str]:
    argv = ["-machine", "hmat=on"]
    initiators = [n for n, node in nodes.items() if node.cpus is not None]
    targets = {n: node for n, node in nodes.items() if node.latency_ns is not None}
    for initiator in initiators:
        for target, node in targets.items():
            pair = f"hmat-lb,initiator={initiator},target={target},hierarchy=memory"
            latency = f"{pair},data-type=access-latency,latency={node.latency_ns}"
            rate = f"{node.bandwidth_mib_s}M"
            width = f"{pair},data-type=access-bandwidth,bandwidth={rate}"
            argv += ["-numa", latency, "-numa", width]
    return argv


def distance_args(
    nodes: Mapping[int, Node], distances: Sequence[Sequence[int]]
) -> list[str]:
    """Return the arguments for the distances between all pairs of nodes."""
    place = {number: at for at, number in enumerate(nodes)}
    argv: list[str] = []
    for source in with_hidden(nodes):
        for target in with_hidden(nodes):
            far = _LOCAL if source == target else _REMOTE
            if source in place and target in place:
                far = distances[place[source]][place[target]]
            argv += ["-numa", f"dist,src={source},dst={target},val={far}"]
    return argv
