# SPDX-License-Identifier: GPL-2.0-only
"""Machines to boot: small named files, and QEMU's words for them."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pageferry.errors import ExitCode, PageferryError, usage_error
from pageferry.units import MIB, parse_size

_DIRECTORY = Path(__file__).parent / "topologies"


class Node(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A NUMA node; without cpus it is memory alone."""

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

    @property
    def memory_bytes(self) -> int:
        """Add up the memory of all nodes."""
        return sum(parse_size(node.memory) for node in self.node)

    def qemu_args(self, *, preallocate: bool = False) -> list[str]:
        """Say it to QEMU."""
        hmat = any(node.latency_ns is not None for node in self.node)
        argv = ["-smp", str(self.cpus), "-m", f"{self.memory_bytes // MIB}M"]
        argv += ["-machine", "hmat=on"] if hmat else []
        for index, node in enumerate(self.node):
            size = parse_size(node.memory)
            backend = f"memory-backend-ram,id=ram{index},size={size}"
            # Without it, the guest's first touch of a page is the host's page
            # fault, and a measurement measures the host.
            backend += ",prealloc=on" if preallocate else ""
            numa = f"node,nodeid={index},memdev=ram{index}"
            numa += f",cpus={node.cpus}" if node.cpus is not None else ""
            if hmat:
                initiator = index if node.initiator is None else node.initiator
                numa += f",initiator={initiator}"
            argv += ["-object", backend, "-numa", numa]
        return argv + (self._hmat_args() if hmat else [])

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
    """Read every topology there is."""
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
    if not topology.node or any(halves) or len(given) > 1:
        raise PageferryError(
            "topology makes no sense",
            value=path,
            reason="all nodes or none need latency_ns and bandwidth_mib_s",
            code=ExitCode.NOT_STARTED,
        )
    return topology
