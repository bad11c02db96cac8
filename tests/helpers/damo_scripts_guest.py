# SPDX-License-Identifier: GPL-2.0-only
"""What the test of damo's scripts does in the guest; prints one JSON document.

python3 -m helpers.damo_scripts_guest HOLD MIB SOURCE
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

from helpers.interleave_hold import Document, Hold

# Only a script that fails lasts so long.
LIMIT_S = 180.0
KDAMONDS = Path("/sys/kernel/mm/damon/admin/kdamonds")


def run(source: Path, program: str, *words: str) -> Document:
    """Run a program of damo's source, of which one script is not executable."""
    shell = ["bash"] if program.endswith(".sh") else []
    done = subprocess.run(
        [*shell, str(source / program), *words],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        check=False,
    )
    return {"code": done.returncode, "said": done.stdout + done.stderr}


def until_up(hot: Hold, share: float) -> float:
    """Wait until node 0 has this share of the memory; returns how long that took."""
    begin = time.monotonic()
    while time.monotonic() - begin < LIMIT_S:
        pages = hot.ask("nodes")["pages"]
        if abs(pages[0] / sum(pages) - share) < 0.02:
            break
        time.sleep(0.5)
    return round(time.monotonic() - begin, 1)


def mem_tier(source: Path, mib: int) -> Document:
    """Have hot and cold memory on the slow node, and let the script work."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1", "-w")
    cold = Hold("-b", f"{mib}M", "-s", "4K", "-n", "1")
    script = run(source, "scripts/mem_tier.sh")
    took_s = until_up(hot, 1.0)
    found = {
        "script": script,
        "took_s": took_s,
        "hot": hot.ask("nodes")["pages"],
        "cold": cold.ask("nodes")["pages"],
        "verified": [hot.ask("verify"), cold.ask("verify")],
        "stopped": run(source, "damo", "stop"),
    }
    hot.end()
    cold.end()
    return found


def weighted_interleave(source: Path, mib: int) -> Document:
    """Let the script spread hot memory over both nodes."""
    hot = Hold("-b", f"{mib}M", "-s", "4K", "-n", "0", "-w")
    script = run(source, "scripts/weighted_interleave.sh", hot.pid)
    took_s = until_up(hot, 0.5)
    found = {
        "script": script,
        "took_s": took_s,
        "hot": hot.ask("nodes")["pages"],
        "verified": [hot.ask("verify")],
        "stopped": run(source, "damo", "stop"),
    }
    hot.end()
    return found


def main() -> None:
    """Run both scripts."""
    mib, source = int(sys.argv[2]), Path(sys.argv[3])
    found = {
        "mem_tier": mem_tier(source, mib),
        "weighted_interleave": weighted_interleave(source, mib),
        # damo leaves their directories.
        "states": [path.read_text().strip() for path in KDAMONDS.glob("*/state")],
    }
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
