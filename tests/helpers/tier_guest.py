# SPDX-License-Identifier: GPL-2.0-only
"""What tests of tiers do in the guest; prints one JSON document.

python3 -m helpers.tier_guest HOLD MIB CASE...
"""

from __future__ import annotations

import json
import mmap
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

from helpers.interleave_hold import Document, Hold, tool
from pageferry.cli import main as pageferry
from pageferry.damon.admin import Admin
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import Node, read_nodes
from pageferry.units import MIB

CONFIG = Path("/tmp/tier.toml")
# A guest without KVM waits long for memory, so stalls do not count here.
RULE = """\
tiers = [[0], [1]]
headroom = {headroom}
cold_after = "2s"
stall = 1.0
interval = "1s"
"""
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")
# Only a case that fails lasts so long.
LIMIT_S = 300.0
# The fraction of the fast node that the service keeps free in the case `down`, and the
# one that is free at its begin.
HEADROOM, FULL = 0.14, 0.10
# The size of the cold memory in this case, in MiB.
COLD_MIB = 64
# A page that is cold has this time to move by mistake, about as long as cold memory
# takes to become cold.
WATCH_S = 3.0


class Running:
    """The service in a process of its own.

    The process is a copy of this one, as Python takes a while to start in a guest.
    """

    def __init__(self, processes: list[Hold], headroom: float = 0.05) -> None:
        """Serve some processes, or all."""
        named = [f"[[process]]\npid = {hold.pid}\n" for hold in processes]
        CONFIG.write_text(RULE.format(headroom=headroom) + "".join(named))
        words = ["tier", "--config", str(CONFIG), *([] if processes else ["--all"])]
        self.log = Path("/tmp/tier.log")
        self.pid = os.fork()
        if self.pid == 0:
            os.dup2(os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), 2)
            os._exit(pageferry(words))

    @property
    def said(self) -> str:
        """Return the lines that the service has printed."""
        return self.log.read_text()

    def end(self, number: int = signal.SIGTERM) -> int:
        """End the service, and return its exit code."""
        os.kill(self.pid, number)
        return os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])


def until(done: Callable[[], bool]) -> float:
    """Wait for a condition for a while; returns the time that it took."""
    begin = time.monotonic()
    while not done() and time.monotonic() - begin < LIMIT_S:
        time.sleep(0.5)
    return round(time.monotonic() - begin, 1)


def result(service: Running, hot: Hold, cold: Hold) -> Document:
    """End the service and its programs, and return what there was."""
    status = tool("tier", "--status")
    code = service.end()
    found = {
        "hot": hot.ask("nodes")["pages"],
        "cold": cold.ask("nodes")["pages"],
        "verified": [hot.ask("verify"), cold.ask("verify")],
        "status": status,
        "code": code,
        "said": service.said,
        "left": KDAMONDS.read_text().strip(),
    }
    hot.end()
    cold.end()
    return found


def serve(mib: int, *, everything: bool) -> Document:
    """Hold hot and cold memory on the slow node, and let the service work."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1", "-w")
    cold = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1")
    before = {"hot": hot.ask("nodes")["pages"], "cold": cold.ask("nodes")["pages"]}
    service = Running([] if everything else [hot, cold])

    def settled() -> bool:
        pages = hot.ask("nodes")["pages"]
        return bool(pages[0] >= 0.9 * sum(pages))

    settled_s = until(settled)
    time.sleep(WATCH_S)
    # The service counts what has moved in its next step.
    least = 0.9 * mib * MIB
    until(lambda: bool(tool("tier", "--status")["promoted_bytes"] >= least))
    found = result(service, hot, cold)
    return {**found, "before": before, "settled_s": settled_s}


def fast_node() -> Node:
    """Read the total and the free memory of the fast node."""
    return read_nodes(Files())[0]


def fill() -> Path:
    """Leave a part of the fast node free; writing 0 to the returned file ends that.

    The kernel does not clear pages of hugetlb before their first use, so that a guest
    without KVM is quick.
    """
    node = fast_node()
    excess = int(node.free_bytes - FULL * node.total_bytes) // (2 * MIB)
    pool = Path("/sys/devices/system/node/node0/hugepages/hugepages-2048kB")
    (pool / "nr_hugepages").write_text(str(excess))
    return pool / "nr_hugepages"


def down(mib: int) -> Document:
    """Have cold memory on a fast node that is full, and let the service make room."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "0", "-w")
    cold = Hold("-b", f"{COLD_MIB}M", "-s", "4K", "-n", "0")
    in_the_way = fill()
    before = cold.ask("nodes")["pages"]
    service = Running([hot, cold], HEADROOM)

    def settled() -> bool:
        node, pages = fast_node(), hot.ask("nodes")["pages"]
        free = node.free_bytes >= 0.98 * HEADROOM * node.total_bytes
        # If the host stops the hot process, its memory looks cold, and comes back.
        return bool(free and pages[0] >= 0.9 * sum(pages))

    settled_s = until(settled)
    node = fast_node()
    moved_bytes = cold.ask("nodes")["pages"][1] * mmap.PAGESIZE
    # The service counts what has moved in its next step.
    until(lambda: bool(tool("tier", "--status")["demoted_bytes"] >= moved_bytes))
    found = result(service, hot, cold)
    in_the_way.write_text("0")
    return {
        **found,
        "before": before,
        "settled_s": settled_s,
        "free": node.free_bytes / node.total_bytes,
        "total_pages": node.total_bytes // 4096,
    }


def killed(mib: int) -> Document:
    """Kill the service, and stop what it has left."""
    hold = Hold("-b", f"{mib}M", "-n", "1", "-w")
    service = Running([hold])

    def runs() -> bool:
        kdamonds = Admin(Files(), {}).kdamonds(wait=False)
        return any(kdamond.running for kdamond in kdamonds)

    until(runs)
    code = service.end(signal.SIGKILL)
    left = KDAMONDS.read_text().strip()
    stopped = tool("tier", "--stop")
    verified = hold.ask("verify")
    hold.end()
    return {
        "code": code,
        "said": service.said,
        "left": left,
        "stopped": stopped,
        "after": KDAMONDS.read_text().strip(),
        "verified": verified,
    }


def main() -> None:
    """Run the named cases."""
    mib = int(sys.argv[2])
    cases = {
        "processes": lambda: serve(mib, everything=False),
        "all": lambda: serve(mib, everything=True),
        "down": lambda: down(mib),
        "killed": lambda: killed(mib),
    }
    found: Document = {}
    for name in sys.argv[3:]:
        begin = time.monotonic()
        found[name] = cases[name]()
        found[name]["case_seconds"] = round(time.monotonic() - begin, 1)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
