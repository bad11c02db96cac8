# SPDX-License-Identifier: GPL-2.0-only
"""The bandwidth of each node, from the firmware (HMAT) or from a measurement."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence

from pageferry import output
from pageferry.bench import build
from pageferry.errors import PageferryError, unsupported
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.units import MIB

_NODES = "/sys/devices/system/node"
# The nearest CPUs, then the nearest initiators of any kind.
_CLASSES = ("access1", "access0")


def nodes_with_memory(files: Files) -> list[int]:
    """List the nodes with memory."""
    return [node.number for node in read_nodes(files) if node.total_bytes]


def first_with_cpus(files: Files) -> int | None:
    """Return the default home: the first node with CPUs and memory."""
    near = [node.number for node in read_nodes(files) if node.cpus and node.total_bytes]
    return near[0] if near else None


def from_hmat(files: Files) -> dict[int, float]:
    """Read HMAT, in bytes/s; empty unless it lists all nodes."""
    found = {}
    nodes = nodes_with_memory(files)
    for node in nodes:
        for name in _CLASSES:
            path = f"{_NODES}/node{node}/{name}/initiators/read_bandwidth"
            text = files.read_or(path, "0")
            if text.isdecimal() and int(text):
                found[node] = float(int(text) * MIB)
                break
    return found if len(found) == len(nodes) else {}


def measure(nodes: Sequence[int], seconds: float = 0.5) -> dict[int, float]:
    """Measure the rate at which all CPUs read from each node."""
    program = build.build() / "bandwidth"
    found = {}
    for node in nodes:
        output.talk(f"measuring the bandwidth of node {node}")
        argv = [str(program), "-n", str(node), "-t", str(int(seconds * 1000))]
        done = subprocess.run(argv, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PageferryError(
                "cannot measure the bandwidth",
                value=f"node {node}",
                reason=done.stderr.strip(),
                hint="set it in [bandwidth] of the configuration",
            )
        found[node] = float(json.loads(done.stdout)["bytes_per_s"])
    return found


def find(files: Files, said: dict[str, float]) -> tuple[dict[int, float], str]:
    """Return the bandwidths and the name of their source."""
    if said:
        return {int(node): rate * 1e9 for node, rate in said.items()}, "configuration"
    known = from_hmat(files)
    if known:
        return known, "HMAT"
    try:
        return measure(nodes_with_memory(files)), "measurement"
    except PageferryError as error:
        # A service may lack the sources, a compiler, or a place for the program.
        raise unsupported(
            "the bandwidth of the nodes is unknown",
            reason=f"there is no HMAT, and a measurement failed: {error.line()}",
            hint="pageferry balance --measure prints [bandwidth] for the configuration",
        ) from error
