# SPDX-License-Identifier: GPL-2.0-only
"""The machine whose figures these are."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass

from pageferry.sysfs.files import Files

_MODEL = re.compile(r"^model name\s*:\s*(.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Machine:
    """The kernel and the processor."""

    kernel: str
    cpu: str
    cpus: int

    @property
    def emulated(self) -> bool:
        """Say whether QEMU translates the instructions."""
        return "TCG" in self.cpu


def read(files: Files) -> Machine:
    """Read the names; arm64 has no name of the processor."""
    match = _MODEL.search(files.read_or("/proc/cpuinfo", ""))
    cpu = match[1] if match else "unknown"
    return Machine(os.uname().release, cpu, os.cpu_count() or 0)
