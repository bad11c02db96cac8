# SPDX-License-Identifier: GPL-2.0-only
"""The drivers of memory-copy engines that dcbm is meant for, and their devices.

Names, PCI numbers and manners come from the source of Linux 6.12. Two drivers are
newer: ae4dma came with Linux 6.14; sdxi was posted in April 2026, and is not in 7.3.
"""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True)
class Driver:
    """A driver, its devices, and its manners.

    The manners have the file and the line of Linux 6.12 that show them.
    """

    # The name in /sys/bus/*/drivers/, and the module's.
    name: str
    module: str
    title: str
    config: str
    # Matches the modalias of its devices.
    alias: str
    # The page in docs/how-to/.
    page: str
    # How the driver reports an error of its device.
    errors: str
    # The effect of terminating on its device.
    stopping: str
    # The first Linux with this driver, if 6.12 lacks it.
    since: str = ""

    def matches(self, modalias: str) -> bool:
        """Say whether a device is one of this driver."""
        return re.search(self.alias, modalias) is not None


def _pci(vendor: str, *devices: str) -> str:
    return rf"^pci:v0000{vendor}d0000(?:{'|'.join(devices)})sv"


_NO_WAY = "the driver has no way to terminate transfers"
IOATDMA = Driver(
    name="ioatdma",
    module="ioatdma",
    title="Intel I/OAT",
    config="CONFIG_INTEL_IOATDMA",
    alias=_pci(
        *("8086", "342[9A-C]", "343[0-3]", "371[0-9]", "(?:3C|0E|2F|6F)2[0-7EF]"),
        *("6F5[0-3]", "0C5[0-3]", "2021", "0B00"),
    ),
    page="dma-intel-ioat.md",
    errors="reports failed reads and writes, ioat/dma.c:823",
    stopping=_NO_WAY,
)
IDXD = Driver(
    name="idxd",
    module="idxd",
    title="Intel DSA",
    config="CONFIG_INTEL_IDXD",
    alias=_pci("8086", "0B25", "11FB", "1212"),
    page="dma-intel-dsa.md",
    errors="reports any status but success, idxd/dma.c:39",
    stopping=_NO_WAY,
)
PTDMA = Driver(
    name="ptdma",
    module="ptdma",
    title="AMD PTDMA",
    config="CONFIG_AMD_PTDMA",
    alias=_pci("1022", "1498"),
    page="dma-amd.md",
    errors="reports errors as success, ptdma/ptdma-dmaengine.c:121",
    stopping="frees descriptors and leaves the device alone, ptdma-dmaengine.c:302",
)
AE4DMA = Driver(
    name="ae4dma",
    module="ae4dma",
    title="AMD AE4DMA",
    config="CONFIG_AMD_AE4DMA",
    alias=_pci("1022", "149B"),
    page="dma-amd.md",
    errors="reports errors as success, amd/ptdma/ptdma-dmaengine.c:373 of Linux 7.3",
    stopping="clears the run bit and does not wait, the same file, line 548",
    since="Linux 6.14 or later",
)
SDXI = Driver(
    name="sdxi",
    module="sdxi",
    title="SDXI",
    config="CONFIG_SDXI",
    alias=r"^pci:.*bc12sc01i00",
    page="dma-amd.md",
    errors="no release of Linux up to 7.3 has this driver",
    stopping="no release of Linux up to 7.3 has this driver",
    since="a release after 7.3",
)
ZYNQMP = Driver(
    name="xilinx-zynqmp-dma",
    module="zynqmp_dma",
    title="Xilinx ZDMA",
    config="CONFIG_XILINX_ZYNQMP_DMA",
    alias=r"C(?:xlnx,zynqmp-dma-1\.0|amd,versal2-dma-1\.0)(?:C|$)",
    page="dma-xilinx-zdma.md",
    errors="reports errors as success, xilinx/zynqmp_dma.c:628",
    stopping="frees descriptors and leaves the device alone, zynqmp_dma.c:802",
)
DMASIM = Driver(
    name="dmasim",
    module="dmasim",
    title="simulated DMA engine",
    config="CONFIG_MIGRATE_DMASIM",
    alias=r"^platform:dmasim$",
    page="dma-engines.md",
    errors="reports its faults",
    stopping="as its file `terminate` in debugfs says",
)
KNOWN = (IOATDMA, IDXD, PTDMA, AE4DMA, SDXI, ZYNQMP, DMASIM)


def of_name(name: str) -> Driver | None:
    """Find a driver by its name."""
    return next((driver for driver in KNOWN if driver.name == name), None)


def of_modalias(modalias: str) -> Driver | None:
    """Find the driver for a device."""
    return next((driver for driver in KNOWN if driver.matches(modalias)), None)
