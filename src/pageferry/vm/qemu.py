# SPDX-License-Identifier: GPL-2.0-only
"""The common arguments of QEMU machines without optional devices."""

from __future__ import annotations

from pageferry.vm import accel, devicetree
from pageferry.vm.topology import Topology


def bare_machine(machine: Topology, chosen: str, *, icount: bool) -> list[str]:
    """Return the command line without memory, devices and kernel."""
    arch = machine.architecture
    argv = [accel.find_qemu(arch), *accel.cpu_args(chosen, icount=icount, arch=arch)]
    argv += ["-machine", machine.machine, "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-no-reboot"]
    if machine.dma_coherent is not None:
        # QEMU puts random numbers into the tree; the seed makes them the same.
        about = [argv[0], *machine.qemu_args(), "-seed", "1"]
        tree = devicetree.of_machine(about, machine.machine, machine.dma_coherent)
        argv += ["-dtb", str(tree)]
    return argv
