# SPDX-License-Identifier: GPL-2.0-only
"""A service of the balancer with a manual clock, on a machine made of files."""

from __future__ import annotations

from helpers.fake_process import BASE, FakeMover, add_area, add_node, add_process
from pageferry.balance import sources, trace
from pageferry.balance.balancer import Balancer, Kind, Settings
from pageferry.balance.config import Config, Program
from pageferry.balance.service import Service
from pageferry.interleave.control import Control
from pageferry.interleave.user_space import Quota
from pageferry.sysfs.files import Files

RATES = {0: 72e9, 1: 26e9}


def put(files: Files, name: str, value: object) -> None:
    """Write a file of the machine."""
    path = files.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{value}\n")


def furnish(files: Files) -> None:
    """Add two nodes, a program with a child, and a foreign program."""
    for node in (0, 1):
        add_node(files, node)
    put(files, "/sys/devices/system/node/node1/cpulist", "")
    for pid, parent, name in ((42, 1, "merci"), (43, 42, "helper"), (50, 1, "other")):
        add_process(files, pid, parent=parent, name=name)
        add_area(files, pid, BASE, list(range(100, 108)))
        put(files, f"/proc/{pid}/statm", "100 8 0 0 0 0 0")


def show(files: Files, *pages: int) -> None:
    """Let the kernel count these pages of each process on nodes 0, 1, ..."""
    counts = " ".join(f"N{node}={count}" for node, count in enumerate(pages))
    for pid in (42, 43):
        line = f"{BASE:x} default anon=8 dirty=8 {counts} kernelpagesize_kB=4"
        put(files, f"/proc/{pid}/numa_maps", line)


TWO_COPIES = [
    trace.Moment(0.0, {}, 54e9),
    trace.Moment(10.0, {}, 108e9),
    trace.Moment(30.0, {}, 54e9),
]


class Machine:
    """A service with a manual clock."""

    def __init__(
        self,
        files: Files,
        mover: FakeMover,
        budget: Quota | None = None,
        **config: object,
    ) -> None:
        self.now_s = 0.0
        self.said: list[str] = []
        self.control = Control(files, mover)
        found = Config(process=[Program(name="merci")], **config)  # type: ignore[arg-type]
        self.balancer = Balancer(RATES, 0, Settings(hold_s=2.0, budget=budget))
        source = sources.Recorded(
            TWO_COPIES, RATES, lambda: self.balancer.shares, lambda: self.now_s
        )
        self.service = Service(
            found,
            files,
            self.control,
            source,
            self.balancer,
            say=self.said.append,
            dry_run=files.dry_run,
        )
        # A busy host must not change what the service does.
        self.service.stopwatch = lambda: self.now_s

    def until(self, end_s: float) -> list[Kind]:
        """Advance the clock, a second at a time, and list the changes."""
        made = []
        while self.now_s < end_s:
            decision = self.service.step(self.now_s)
            made += [decision.kind] if decision.weights is not None else []
            self.now_s += 1.0
        return made
