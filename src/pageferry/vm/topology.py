# SPDX-License-Identifier: GPL-2.0-only
"""Topologies: the machines to boot, read from topologies/*.toml."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.kernel.arch import X86_64, Architecture, find
from pageferry.units import MIB
from pageferry.vm import numa, rules
from pageferry.vm.accel import icount_words
from pageferry.vm.numa import Node

_HINT = "docs/reference/topologies.md lists all fields"
_DIRECTORY = Path(__file__).parent / "topologies"


class Topology(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A machine."""

    description: str
    cpus: int
    node: list[Node]
    icount: bool = False
    arch: str = X86_64.name
    machine: str = "q35"
    # QEMU's number of CPUs, if it includes some that Linux cannot use.
    qemu_cpus: int | None = None
    # QEMU's machine has no nodes, so the kernel makes some (numa=fake). They have
    # the same size, and each has every CPU.
    fake_nodes: bool = False
    # Channels of the machine's DMA controller; 0: dmasim simulates one.
    dma_channels: int = 0
    # Processor packages; the default is one for each node with CPUs. Each has the same
    # number of CPUs.
    sockets: int | None = None
    # From the node of each row to each node, as `numactl -H` shows them.
    distances: list[list[int]] | None = None
    # Devices to mark as coherent in the device tree: see devicetree.py.
    dma_coherent: str | None = None
    # A virtual IOMMU, and a PCI device behind it for dmasim.
    iommu: bool = False
    # More kernel parameters.
    append: list[str] = []

    @property
    def architecture(self) -> Architecture:
        """Return the architecture of its kernels and programs."""
        return find(self.arch)

    @property
    def sees_host(self) -> bool:
        """Say whether the guest mounts the host's root and runs its programs."""
        return self.architecture is X86_64

    @property
    def numbers(self) -> dict[int, Node]:
        """Return the nodes by their numbers."""
        return numa.numbered(self.node)

    @property
    def with_memory(self) -> list[int]:
        """List the nodes that have memory."""
        return [n for n, node in self.numbers.items() if node.memory is not None]

    @property
    def memory_bytes(self) -> int:
        """Add up the memory of all nodes."""
        return sum(node.memory_bytes for node in self.node)

    def kernel_words(self, *, icount: bool | None = None) -> list[str]:
        """Return the kernel parameters of this machine."""
        words = [f"numa=fake={len(self.node)}"] if self.fake_nodes else []
        words += [f"nr_cpus={self.cpus}"] if self.qemu_cpus is not None else []
        words += numa.hiding_words(self.numbers)
        # guest.py brings this memory online, after Linux has read the HMAT.
        later = any(node.hotplug for node in self.node)
        words += ["memhp_default_state=offline", "pageferry_online=1"] if later else []
        counted = self.icount if icount is None else icount
        words += icount_words(self.architecture) if counted else ()
        return [*words, *self.append]

    def qemu_args(self, *, preallocate: bool = False) -> list[str]:
        """Return QEMU's arguments for CPUs, memory and nodes."""
        if self.fake_nodes:
            return self._one_memory_args(preallocate=preallocate)
        argv = ["-smp", self._smp(), *numa.memory_args(self.numbers)]
        if self.iommu:
            argv += ["-device", "intel-iommu", "-device", "pci-testdev"]
        argv += numa.node_args(self.numbers, preallocate=preallocate)
        if self.distances is not None:
            argv += numa.distance_args(self.numbers, self.distances)
        return argv

    def _smp(self) -> str:
        """Return QEMU's processors.

        CPUs of one package share a cache, and Linux warns if they are on different
        nodes. So each node has a package of its own, unless `sockets` says otherwise.
        """
        nodes = sum(node.cpus is not None for node in self.node) or 1
        if self.cpus % nodes:
            nodes = self.cpus
        sockets = self.sockets or nodes
        cores = self.cpus // sockets
        return f"{self.cpus},sockets={sockets},cores={cores},threads=1"

    def _one_memory_args(self, *, preallocate: bool) -> list[str]:
        backend = f"memory-backend-ram,id=ram0,size={self.memory_bytes}"
        backend += ",prealloc=on" if preallocate else ""
        argv = ["-smp", str(self.qemu_cpus or self.cpus)]
        argv += ["-m", f"{self.memory_bytes // MIB}M"]
        return [*argv, "-object", backend, "-machine", "memory-backend=ram0"]


def available() -> dict[str, Topology]:
    """Read all topologies of the tool."""
    return {path.stem: _read(path) for path in sorted(_DIRECTORY.glob("*.toml"))}


def load(name: str) -> Topology:
    """Read a topology by its name, or from a file."""
    if name.endswith(".toml"):
        return _read(Path(name))
    known = sorted(path.stem for path in _DIRECTORY.glob("*.toml"))
    if name not in known:
        hint = f"there is: {', '.join(known)}; or FILE.toml"
        raise usage_error("unknown topology", name, hint)
    return _read(_DIRECTORY / f"{name}.toml")


def _read(path: Path) -> Topology:
    try:
        topology = msgspec.toml.decode(path.read_bytes(), type=Topology)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else None
        raise PageferryError(
            "cannot read a topology",
            value=path,
            reason=reason or str(error),
            hint=_HINT,
            code=ExitCode.USAGE,
        ) from error
    find(topology.arch)
    wrong = _first_fault(topology)
    if wrong is not None:
        raise PageferryError(
            "topology makes no sense",
            value=path,
            reason=wrong,
            hint=_HINT,
            code=ExitCode.USAGE,
        )
    return topology


def _first_fault(machine: Topology) -> str | None:
    if machine.fake_nodes:
        return _fault_of_fake_nodes(machine)
    if not machine.sees_host:
        return f"{machine.arch}: the machine needs fake_nodes"
    if machine.cpus < 1:
        return "cpus has to be at least 1"
    if machine.sockets is not None and (
        machine.sockets < 1 or machine.cpus % machine.sockets
    ):
        return f"sockets = {machine.sockets} does not divide cpus = {machine.cpus}"
    wrong = rules.first_fault(machine.node, machine.cpus)
    if wrong is None and machine.distances is not None:
        wrong = rules.fault_of_distances(machine.node, machine.distances)
    return wrong


def _fault_of_fake_nodes(machine: Topology) -> str | None:
    """Linux makes such nodes alike, without firmware that describes them."""
    plain = [Node(memory=node.memory, cpus=node.cpus) for node in machine.node]
    sizes = {node.memory for node in machine.node}
    described = machine.distances is not None or machine.sockets is not None
    if not machine.node or plain != machine.node or None in sizes or described:
        return "with fake_nodes, a node has memory and cpus, and no other field"
    if len(sizes) > 1:
        return "with fake_nodes, all nodes need the same memory"
    return None
