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

CONFIG = Path("/tmp/tier.toml")
# A guest without KVM waits long for memory, so stalls do not count here.
RULE = """\
tiers = [[0], [1]]
headroom = 0.05
cold_after = "5s"
stall = 1.0
interval = "2s"
"""
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")
SETTLES_S = 120.0
# A page that is cold has this time to move by mistake.
WATCH_S = 10.0


def service(processes: list[Hold]) -> subprocess.Popen[str]:
    """Start the service for some processes, or for all."""
    named = [f"[[process]]\npid = {hold.pid}\n" for hold in processes]
    CONFIG.write_text(RULE + "".join(named))
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


def killed(mib: int) -> Document:
    """Kill the service, and stop what it has left."""
    hold = Hold("-b", f"{mib}M", "-n", "1", "-w")
    process = service([hold])
    while KDAMONDS.read_text().strip() == "0" and process.poll() is None:
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
        "killed": lambda: killed(mib),
    }
    json.dump({name: cases[name]() for name in sys.argv[3:]}, sys.stdout)


if __name__ == "__main__":
    main()
