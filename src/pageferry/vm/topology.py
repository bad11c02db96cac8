# SPDX-License-Identifier: GPL-2.0-only
"""Topologies: the machines to boot, read from topologies/*.toml."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.kernel.arch import X86_64, Architecture, find
from pageferry.units import MIB, parse_size
from pageferry.vm.accel import icount_words

_DIRECTORY = Path(__file__).parent / "topologies"


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A NUMA node; without `cpus` it has only memory."""

    memory: str
    cpus: str | None = None
    initiator: int | None = None
    latency_ns: int | None = None
    bandwidth_mib_s: int | None = None


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
    def memory_bytes(self) -> int:
        """Add up the memory of all nodes."""
        return sum(parse_size(node.memory) for node in self.node)

    def kernel_words(self, *, icount: bool | None = None) -> list[str]:
        """Return the kernel parameters of this machine."""
        words = [f"numa=fake={len(self.node)}"] if self.fake_nodes else []
        words += [f"nr_cpus={self.cpus}"] if self.qemu_cpus is not None else []
        counted = self.icount if icount is None else icount
        words += icount_words(self.architecture) if counted else ()
        return [*words, *self.append]

    def qemu_args(self, *, preallocate: bool = False) -> list[str]:
        """Return QEMU's arguments for CPUs, memory and nodes."""
        if self.fake_nodes:
            return self._one_memory_args(preallocate=preallocate)
        hmat = any(node.latency_ns is not None for node in self.node)
        argv = ["-smp", str(self.cpus), "-m", f"{self.memory_bytes // MIB}M"]
        argv += ["-device", "intel-iommu"] if self.iommu else []
        argv += ["-device", "pci-testdev"] if self.iommu else []
        argv += ["-machine", "hmat=on"] if hmat else []
        for index, node in enumerate(self.node):
            size = parse_size(node.memory)
            backend = f"memory-backend-ram,id=ram{index},size={size}"
            # Otherwise the guest's first touch of a page causes a page fault of the
            # host, which a measurement would include.
            backend += ",prealloc=on" if preallocate else ""
            numa = f"node,nodeid={index},memdev=ram{index}"
            numa += f",cpus={node.cpus}" if node.cpus is not None else ""
            if hmat:
                initiator = index if node.initiator is None else node.initiator
                numa += f",initiator={initiator}"
            argv += ["-object", backend, "-numa", numa]
        return argv + (self._hmat_args() if hmat else [])

    def _one_memory_args(self, *, preallocate: bool) -> list[str]:
        backend = f"memory-backend-ram,id=ram0,size={self.memory_bytes}"
        backend += ",prealloc=on" if preallocate else ""
        argv = ["-smp", str(self.qemu_cpus or self.cpus)]
        argv += ["-m", f"{self.memory_bytes // MIB}M"]
        return [*argv, "-object", backend, "-machine", "memory-backend=ram0"]

    def _hmat_args(self) -> list[str]:
        argv: list[str] = []
        initiators = [i for i, node in enumerate(self.node) if node.cpus is not None]
        for initiator in initiators:
            for target, node in enumerate(self.node):
                pair = f"hmat-lb,initiator={initiator},target={target},hierarchy=memory"
                latency = f"{pair},data-type=access-latency,latency={node.latency_ns}"
                rate = f"{node.bandwidth_mib_s}M"
                width = f"{pair},data-type=access-bandwidth,bandwidth={rate}"
                argv += ["-numa", latency, "-numa", width]
        return argv


def available() -> dict[str, Topology]:
    """Read all topologies."""
    return {path.stem: _read(path) for path in sorted(_DIRECTORY.glob("*.toml"))}


def load(name: str) -> Topology:
    """Read one topology by its name."""
    known = sorted(path.stem for path in _DIRECTORY.glob("*.toml"))
    if name not in known:
        raise usage_error("unknown topology", name, f"there is: {', '.join(known)}")
    return _read(_DIRECTORY / f"{name}.toml")


def _read(path: Path) -> Topology:
    try:
        topology = msgspec.toml.decode(path.read_bytes(), type=Topology)
    except (OSError, msgspec.MsgspecError, ValueError) as error:
        raise PageferryError(
            "cannot read a topology",
            value=path,
            reason=str(error),
            code=ExitCode.NOT_STARTED,
        ) from error
    halves = [
        (n.latency_ns is None) != (n.bandwidth_mib_s is None) for n in topology.node
    ]
    given = {node.latency_ns is None for node in topology.node}
    sizes = {node.memory for node in topology.node}
    if not topology.node or any(halves) or len(given) > 1:
        raise PageferryError(
            "topology makes no sense",
            value=path,
            reason="all nodes or none need latency_ns and bandwidth_mib_s",
            code=ExitCode.NOT_STARTED,
        )
    if topology.fake_nodes and (len(sizes) > 1 or given != {True}):
        raise PageferryError(
            "topology makes no sense",
            value=path,
            reason="with fake_nodes all nodes need the same memory, without latencies",
            code=ExitCode.NOT_STARTED,
        )
    find(topology.arch)
    return topology
