# SPDX-License-Identifier: GPL-2.0-only
"""What tests of tiers do in the guest; prints one JSON document.

python3 -m helpers.tier_guest HOLD MIB CASE...
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

from helpers.interleave_hold import Document, Hold, tool
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import Node, read_nodes
from pageferry.units import MIB

CONFIG = Path("/tmp/tier.toml")
# A guest without KVM waits long for memory, so stalls do not count here.
RULE = """\
tiers = [[0], [1]]
headroom = {headroom}
cold_after = "5s"
stall = 1.0
interval = "2s"
"""
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")
STATE = KDAMONDS.parent / "0/state"
SETTLES_S = 120.0
STARTS_S = 120.0
# The fraction of the fast node that the service keeps free in the case `down`, and the
# one that is free at its begin.
HEADROOM, FULL = 0.4, 0.3
# A page that is cold has this time to move by mistake.
WATCH_S = 10.0


def service(processes: list[Hold], headroom: float = 0.05) -> subprocess.Popen[str]:
    """Start the service for some processes, or for all."""
    named = [f"[[process]]\npid = {hold.pid}\n" for hold in processes]
    CONFIG.write_text(RULE.format(headroom=headroom) + "".join(named))
    words = [sys.executable, "-m", "pageferry", "tier", "--config", str(CONFIG)]
    if not processes:
        words.append("--all")
    return subprocess.Popen(words, stderr=subprocess.PIPE, text=True)


def serve(mib: int, *, everything: bool) -> Document:
    """Hold hot and cold memory on the slow node, and let the service work."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1", "-w")
    cold = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1")
    before = {"hot": hot.ask("nodes")["pages"], "cold": cold.ask("nodes")["pages"]}
    process = service([] if everything else [hot, cold])
    begin = time.monotonic()
    while time.monotonic() - begin < SETTLES_S:
        pages = hot.ask("nodes")["pages"]
        if pages[0] >= 0.9 * sum(pages):
            break
        time.sleep(1.0)
    settled_s = time.monotonic() - begin
    time.sleep(WATCH_S)
    status = tool("tier", "--status")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    found = {
        "before": before,
        "settled_s": round(settled_s, 1),
        "hot": hot.ask("nodes")["pages"],
        "cold": cold.ask("nodes")["pages"],
        "verified": [hot.ask("verify"), cold.ask("verify")],
        "status": status,
        "code": process.returncode,
        "said": said,
        "left": KDAMONDS.read_text().strip(),
    }
    hot.end()
    cold.end()
    return found


def fast_node() -> Node:
    """Read the total and the free memory of the fast node."""
    return read_nodes(Files())[0]


def down(mib: int) -> Document:
    """Fill the fast node with cold memory, and let the service make room."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "0", "-w")
    node = fast_node()
    excess = int(node.free_bytes - FULL * node.total_bytes) // MIB
    cold = Hold("-b", f"{excess}M", "-s", "4K", "-n", "0")
    before = cold.ask("nodes")["pages"]
    process = service([hot, cold], HEADROOM)
    begin = time.monotonic()
    while time.monotonic() - begin < SETTLES_S:
        node = fast_node()
        if node.free_bytes >= 0.98 * HEADROOM * node.total_bytes:
            break
        time.sleep(1.0)
    settled_s = time.monotonic() - begin
    time.sleep(WATCH_S)
    node, status = fast_node(), tool("tier", "--status")
    process.send_signal(signal.SIGTERM)
    _, said = process.communicate(timeout=60)
    found = {
        "before": before,
        "settled_s": round(settled_s, 1),
        "free": node.free_bytes / node.total_bytes,
        "total_pages": node.total_bytes // 4096,
        "hot": hot.ask("nodes")["pages"],
        "cold": cold.ask("nodes")["pages"],
        "verified": [hot.ask("verify"), cold.ask("verify")],
        "status": status,
        "said": said,
    }
    hot.end()
    cold.end()
    return found


def killed(mib: int) -> Document:
    """Kill the service, and stop what it has left."""
    hold = Hold("-b", f"{mib}M", "-n", "1", "-w")
    process = service([hold])
    due = time.monotonic() + STARTS_S
    while not STATE.exists() or STATE.read_text().strip() != "on":
        if process.poll() is not None or time.monotonic() > due:
            process.kill()
            raise RuntimeError(f"the service did not start: {process.communicate()[1]}")
        time.sleep(0.5)
    process.kill()
    process.wait()
    left = KDAMONDS.read_text().strip()
    stopped = tool("tier", "--stop")
    verified = hold.ask("verify")
    hold.end()
    after = KDAMONDS.read_text().strip()
    return {"left": left, "stopped": stopped, "after": after, "verified": verified}


def main() -> None:
    """Run the named cases."""
    mib = int(sys.argv[2])
    cases = {
        "processes": lambda: serve(mib, everything=False),
        "all": lambda: serve(mib, everything=True),
        "down": lambda: down(mib),
        "killed": lambda: killed(mib),
    }
    json.dump({name: cases[name]() for name in sys.argv[3:]}, sys.stdout)


if __name__ == "__main__":
    main()
