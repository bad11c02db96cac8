# SPDX-License-Identifier: GPL-2.0-only
"""A service of the tiers with a manual clock, on a machine made of files."""

from __future__ import annotations

from helpers.balance_machine import put
from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.balance.config import Program
from pageferry.damon.admin import TOP
from pageferry.sysfs.files import Files
from pageferry.tier.config import Config
from pageferry.tier.service import Service

MERCI = [Program(name="merci")]


def furnish(files: Files) -> None:
    """Add a fast and a slow node, and a program with 64 pages."""
    for node in (0, 1):
        add_node(files, node, mib=4096)
        put(files, f"/sys/devices/system/node/node{node}/memory{node}/state", "online")
    put(files, "/sys/devices/system/memory/block_size_bytes", "40000000")
    put(files, "/sys/devices/virtual/memory_tiering/memory_tier4/nodelist", "0")
    put(files, "/sys/devices/virtual/memory_tiering/memory_tier22/nodelist", "1")
    put(files, "/proc/sys/kernel/numa_balancing", "0")
    put(files, "/proc/pressure/memory", "some avg10=0.00 total=0\nfull total=0")
    add_process(files, 42, name="merci")
    add_area(files, 42, BASE, list(range(100, 164)))
    put(files, "/proc/42/statm", "100 64 0 0 0 0 0")


class Machine:
    """A service with a manual clock."""

    def __init__(self, files: Files, process: list[Program], **more: object) -> None:
        self.files = files
        self.mover = FakeMover()
        self.said: list[str] = []
        config = Config(process=process, **more)  # type: ignore[arg-type]
        self.service = Service(config, files, self.mover, self.said.append)
        self.now_s = 0.0
        # A busy host must not change what the service does.
        self.service.owners.stopwatch = lambda: self.now_s

    def steps(self, count: int) -> None:
        """Make some steps, five seconds apart."""
        for _ in range(count):
            self.service.step(self.now_s)
            self.now_s += 5.0

    def scheme(self, number: int, name: str, slot: int = 0) -> str:
        """Read a file of a scheme."""
        return self.files.read(f"{TOP}/{slot}/contexts/0/schemes/{number}/{name}")
