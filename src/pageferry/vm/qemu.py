# SPDX-License-Identifier: GPL-2.0-only
"""QEMU with a machine in it and nothing else: no devices but the board's own."""

from __future__ import annotations

from pageferry.vm import accel, devicetree
from pageferry.vm.topology import Topology


def bare_machine(machine: Topology, chosen: str, *, icount: bool) -> list[str]:
    """Give the command line up to where memory, devices and the kernel come."""
    arch = machine.architecture
    argv = [accel.find_qemu(arch), *accel.cpu_args(chosen, icount=icount, arch=arch)]
    argv += ["-machine", machine.machine, "-nodefaults", "-no-user-config"]
    argv += ["-display", "none", "-no-reboot"]
    if machine.dma_coherent is not None:
        # The same seed, so that the same random numbers end up in it.
        about = [argv[0], *machine.qemu_args(), "-seed", "1"]
        tree = devicetree.of_machine(about, machine.machine, machine.dma_coherent)
        argv += ["-dtb", str(tree)]
    return argv
