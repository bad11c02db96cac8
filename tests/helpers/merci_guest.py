# SPDX-License-Identifier: GPL-2.0-only
"""The published example of the balancer, with memory that really moves.

python3 -m helpers.merci_guest HOLD MIB merci

`embed` adds up rows of a table, as MERCI does. The machine has the published bandwidths,
and the load wants more than both nodes give, all the time. No emulated node has these
bandwidths, so a recorded load stands for the counters. All else is real.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

from helpers.interleave_hold import Document, tool

# A quarter of 64 MiB takes four seconds on its way, so a hasty rule would act meanwhile.
CONFIG = """
source = "recorded"
record = "/tmp/load.csv"
interval = "200ms"
hold = "500ms"
quota = "4M/1s"
[bandwidth]
0 = 72.0
1 = 26.0
[[process]]
name = "embed"
"""
LOAD = "time_s,demand\n0,200e9\n"
# A quarter has to be there, and to stay there for so many looks.
SHARE, SLACK = 0.25, 0.01
LOOKS_AT_END = 20
# A busy host takes long.
BALANCED_S = 300


def pages(pid: int) -> list[int]:
    """Count the anonymous pages of a process on both nodes."""
    lines = Path(f"/proc/{pid}/numa_maps").read_text().splitlines()
    text = "\n".join(line for line in lines if " anon=" in line)
    return [sum(map(int, re.findall(rf" N{node}=(\d+)", text))) for node in (0, 1)]


def merci(mib: int) -> Document:
    """Balance the program, and follow the placement of its table."""
    Path("/tmp/balance.toml").write_text(CONFIG)
    Path("/tmp/load.csv").write_text(LOAD)
    embed = Path(sys.argv[1]).with_name("embed")
    program = subprocess.Popen(
        [embed, "--bytes", f"{mib}M", "--seconds", "600"], stdout=subprocess.PIPE
    )
    while sum(pages(program.pid)) < mib * 256:
        time.sleep(0.1)
    places = [pages(program.pid)]
    over = threading.Event()

    def look() -> None:
        there = 0
        while there < LOOKS_AT_END and not over.wait(0.3):
            places.append(pages(program.pid))
            share = places[-1][1] / sum(places[-1])
            there = there + 1 if abs(share - SHARE) < SLACK else 0
        # The signal ends the tool, as it would end the service.
        if not over.is_set():
            os.kill(os.getpid(), signal.SIGINT)

    looking = threading.Thread(target=look)
    looking.start()
    done = tool("balance", "--config", "/tmp/balance.toml", "--for", f"{BALANCED_S}s")
    over.set()
    looking.join()
    places.append(pages(program.pid))
    program.send_signal(signal.SIGINT)
    printed, _ = program.communicate()
    words = ("--replay", "saturated", "--bandwidth", "0=72,1=26")
    return {
        "balanced": done,
        "places": places,
        # The program itself checks all sums.
        "embed_code": program.returncode,
        "embed": json.loads(printed.splitlines()[-1]),
        "replayed": tool("balance", *words),
    }


def main() -> None:
    """Run the only case."""
    json.dump({"merci": merci(int(sys.argv[2]))}, sys.stdout)


if __name__ == "__main__":
    main()
