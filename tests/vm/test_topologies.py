# SPDX-License-Identifier: GPL-2.0-only
"""Linux sees each machine as its topology describes it."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from conftest import RunInVm
from pageferry.kernel.build import BuiltKernel
from pageferry.vm import topology

pytestmark = pytest.mark.vm

# Prints the nodes, their memory, CPUs and tiers as JSON.
LOOK = """
import json
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
print(json.dumps([[n.number, n.cpus, n.total_bytes, n.tier] for n in read_nodes(Files())]))
"""
NAMES = ("two-sockets", "sub-numa", "cxl", "three-tiers", "gpu", "gaps")


@pytest.mark.parametrize("name", NAMES)
def test_linux_sees_the_nodes(
    name: str, kernel_vm: BuiltKernel, in_vm: RunInVm
) -> None:
    path = {"PYTHONPATH": str(Path(topology.__file__).resolve().parents[2])}
    argv = (sys.executable, "-c", LOOK)
    done = in_vm(kernel_vm, *argv, topology=name, environment=path)
    assert done.status == 0, done.stderr
    wanted = topology.load(name).numbers
    seen = {number: rest for number, *rest in json.loads(done.stdout)}
    assert sorted(seen) == sorted(wanted)
    for number, node in wanted.items():
        cpus, total_bytes, tier = seen[number]
        assert bool(cpus) == (node.cpus is not None)
        # The kernel keeps some of it.
        assert 0.7 * node.memory_bytes <= total_bytes <= node.memory_bytes
        assert (tier is None) == (node.memory is None)
    if name in ("cxl", "three-tiers"):
        tiers = [seen[number][2] for number in sorted(seen)]
        assert tiers == sorted(tiers)
        assert len(set(tiers)) == (2 if name == "cxl" else 3)
