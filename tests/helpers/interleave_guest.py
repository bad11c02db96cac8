# SPDX-License-Identifier: GPL-2.0-only
"""What tests of interleaving do in the guest; prints one JSON document.

python3 -m helpers.interleave_guest HOLD MIB CASE...
"""

from __future__ import annotations

import json
import mmap
import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

from helpers.interleave_hold import Document, Hold, interleave, tool, warm
from pageferry.balance import bandwidth
from pageferry.damon.admin import Admin
from pageferry.sysfs.files import Files
from pageferry.units import parse_size

DAMON = Path("/sys/kernel/mm/damon/admin/kdamonds")
USER = ("--by", "user")
WEIGHTS = ("0=1,1=1", "0=3,1=1", "0=2,1=5", "0=1,1=0", "0=0,1=1")
# With less memory than this, a case uses only the first few weights.
THOROUGH_MIB = 256
# Huge pages to leave free on a full node: a few more than Linux keeps free.
ROOM_HUGE = 22
# A late look may misjudge a rate by this part of the time.
QUOTA_LATE = 0.05
QUOTA_TRIES = 3


def shares(mib: int, folio: str, *options: str) -> Document:
    """Apply each list of weights twice."""
    hold = warm("-b", f"{mib}M", "-s", folio, *options)
    quick = 2 if options else 3
    seen = []
    for at, weights in enumerate(WEIGHTS[: None if mib >= THOROUGH_MIB else quick]):
        words = ("set",) if at else ("start", *USER)
        first = interleave(words[0], hold, "--weights", weights, *words[1:])
        nodes = hold.ask("nodes")["pages"]
        again = interleave("set", hold, "--weights", weights)
        status = interleave("status", hold)
        seen.append(
            {
                "weights": weights,
                "first": first,
                "again": again,
                "status": status,
                "nodes": nodes,
            }
        )
    verified = hold.ask("verify")
    stopped = interleave("stop", hold, "--home", "0")
    home = hold.ask("nodes")["pages"]
    verified_home = hold.ask("verify")
    hold.end()
    return {
        "folio_pages": parse_size(folio) // mmap.PAGESIZE,
        "seen": seen,
        "verified": verified,
        "stopped": stopped,
        "home": home,
        "verified_home": verified_home,
    }


def fill(node: int) -> Path:
    """Leave little room on a node; writing 0 to the returned file ends that."""
    pool = Path(f"/sys/devices/system/node/node{node}/hugepages/hugepages-2048kB")
    text = Path(f"/sys/devices/system/node/node{node}/meminfo").read_text()
    # Without this limit, a CPU's own list of free pages keeps all pages of the room.
    Path("/proc/sys/vm/percpu_pagelist_high_fraction").write_text("1000000")
    free_mib = int(text.partition("MemFree:")[2].split()[0]) // 1024
    # hugetlb pages fill the node quickly: the kernel clears them only on use.
    (pool / "nr_hugepages").write_text(str(free_mib // 2))
    taken = int((pool / "nr_hugepages").read_text())
    (pool / "nr_hugepages").write_text(str(taken - ROOM_HUGE))
    return pool / "nr_hugepages"


def full(mib: int) -> Document:
    """Move to a node that has room for a part only."""
    hold = warm("-b", f"{max(mib, 64)}M", "-s", "2M")
    in_the_way = fill(1)
    done = interleave("start", hold, "--weights", "0=0,1=1", *USER)
    verified = hold.ask("verify")
    nodes = hold.ask("nodes")["pages"]
    status = interleave("status", hold)
    in_the_way.write_text("0")
    rest = interleave("set", hold, "--weights", "0=0,1=1")
    hold.end()
    return {
        "done": done,
        "verified": verified,
        "nodes": nodes,
        "status": status,
        "rest": rest,
    }


def ends(mib: int) -> Document:
    """Let the process end during the move."""
    hold = Hold("-b", f"{mib}M", "-s", "4K")

    def end_it() -> None:
        while not hold.ask("nodes")["pages"][1]:
            time.sleep(0.05)
        hold.end()

    threading.Thread(target=end_it, daemon=True).start()
    words = ("--weights", "0=0,1=1", "--quota", f"{max(mib // 8, 1)}M/1s")
    done = interleave("start", hold, *words, *USER)
    hold.process.wait()
    return {"done": done, "stopped": interleave("stop", hold)}


def quota(mib: int) -> Document:
    """Move at a given rate."""
    hold = Hold("-b", f"{mib}M", "-s", "4K")
    words = ("--weights", "0=0,1=1", "--quota", f"{mib // 2}M/1s")
    done = interleave("start", hold, *words, *USER)
    hold.end()
    return {"done": done}


def empty(_mib: int) -> Document:
    """Interleave processes without memory."""
    child = subprocess.Popen(["true"])
    # It ends, and stays a zombie.
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)
    words = ("interleave", "start", "--weights", "0=1,1=1", "--pid")
    zombie = tool(*words, str(child.pid))
    child.wait()
    thread = tool(*words, "2")
    gone = tool(*words, str(child.pid))
    return {"zombie": zombie, "thread": thread, "gone": gone}


def areas(by: str) -> Document:
    """Interleave a thousand areas, shared with a child."""
    ready, tell = os.pipe()
    kept = [mmap.mmap(-1, 8 * mmap.PAGESIZE) for _ in range(1000)]
    for area in kept:
        area[:: mmap.PAGESIZE] = b"x" * 8
    pid = os.fork()
    if pid == 0:
        for area in kept:
            assert area[:: mmap.PAGESIZE] == b"x" * 8
        os.write(tell, b"x")
        time.sleep(600)
    os.read(ready, 1)
    words = ("--pid", str(pid), "--weights", "0=1,1=1")
    first = tool("interleave", "start", *words, "--by", by)
    status = settled(str(pid)) if by == "kernel" else first
    again = tool("interleave", "set", *words)
    intact = all(area[:: mmap.PAGESIZE] == b"x" * 8 for area in kept)
    tool("interleave", "stop", "--pid", str(pid))
    os.kill(pid, 9)
    os.waitpid(pid, 0)
    return {"first": first, "status": status, "again": again, "intact": intact}


def others(_mib: int) -> Document:
    """Another program uses DAMON."""
    hold = Hold("-b", "4M")
    at = DAMON / "0" / "contexts" / "0"
    (DAMON / "nr_kdamonds").write_text("1")
    (DAMON / "0/contexts/nr_contexts").write_text("1")
    configured = interleave("start", hold, "--weights", "0=1,1=1")
    (at / "operations").write_text("vaddr")
    (at / "targets/nr_targets").write_text("1")
    (at / "targets/0/pid_target").write_text(hold.pid)
    (DAMON / "0/state").write_text("on")
    # Unlike plain reads and writes, it waits while the kdamond holds the files' lock.
    admin = Admin(Files(), {})
    thread = admin.kdamonds()[0].pid
    refused = interleave("start", hold, "--weights", "0=1,1=1")
    without = interleave("start", hold, "--weights", "0=1,1=1", *USER)
    same = admin.kdamonds()[0].pid == thread
    admin.write("0/state", "off")
    (DAMON / "nr_kdamonds").write_text("0")
    hold.end()
    return {
        "configured": configured,
        "refused": refused,
        "without": without,
        "same": same,
    }


def settled(pid: str, limit_s: float = 120.0) -> Document:
    """Wait until DAMON has placed all pages, and has gone over them twice since.

    DAMON counts a region when it is done with the region, which is after the region's
    last page has moved.
    """
    begin = time.monotonic()
    since: Document | None = None
    while True:
        status = tool("interleave", "status", "--pid", pid)
        took_s = time.monotonic() - begin
        # The counts of the last look at which pages were left, or moved.
        if (
            since is None
            or status["left_pages"]
            or status["moved_pages"] != since["moved_pages"]
        ):
            since = status
        size = sum(node["pages"] for node in status["nodes"]) * status["page_bytes"]
        tried = status["damon"]["sz_tried"] - since["damon"]["sz_tried"]
        if tried >= 2 * size or took_s > limit_s:
            return {**status, "took_s": round(took_s, 2)}
        time.sleep(0.25)


def auto(_mib: int) -> Document:
    """Let the tool choose the mover."""
    hold = Hold("-b", "4M")
    asked = interleave("start", hold, "--weights", "0=1,1=1", "--by", "kernel")
    interleave("stop", hold)
    done = interleave("start", hold, "--weights", "0=1,1=1")
    stopped = interleave("stop", hold)
    left = (DAMON / "nr_kdamonds").read_text().strip()
    hold.end()
    return {"asked": asked, "done": done, "stopped": stopped, "left": left}


def damon(mib: int, folio: str) -> Document:
    """Interleave by DAMON with all weights, then check that DAMON rests."""
    hold = warm("-b", f"{mib}M", "-s", folio)
    seen = []
    for at, weights in enumerate(WEIGHTS[: None if mib >= THOROUGH_MIB else 2]):
        words = ("set",) if at else ("start", "--by", "kernel")
        first = interleave(words[0], hold, "--weights", weights, *words[1:])
        if first["code"] == 3:
            hold.end()
            return {"lacking": first}
        status = settled(hold.pid)
        nodes = hold.ask("nodes")["pages"]
        time.sleep(1.2)
        again = interleave("status", hold)
        seen.append({"first": first, "status": status, "nodes": nodes, "again": again})
    verified = hold.ask("verify")
    stopped = interleave("stop", hold, "--home", "0")
    left = (DAMON / "nr_kdamonds").read_text().strip()
    home = hold.ask("nodes")["pages"]
    hold.end()
    return {
        "folio_pages": parse_size(folio) // mmap.PAGESIZE,
        "seen": seen,
        "verified": verified,
        "stopped": stopped,
        "left": left,
        "home": home,
    }


def damon_full(mib: int) -> Document:
    """Have DAMON move to a node with room for a part, then for all."""
    hold = warm("-b", f"{max(mib, 64)}M", "-s", "2M")
    in_the_way = fill(1)
    interleave("start", hold, "--weights", "0=0,1=1", "--by", "kernel")
    found: Document = {"nodes": None, "before": 0}
    # All that fits has moved when nothing moves for a while, after the first pages.
    while found["nodes"] != found["before"] or not found["nodes"][1]:
        time.sleep(2)
        found |= {"before": found["nodes"], "status": interleave("status", hold)}
        found["nodes"] = hold.ask("nodes")["pages"]
    found["verified"] = hold.ask("verify")
    in_the_way.write_text("0")
    found["rest"] = settled(hold.pid)
    found["after"] = hold.ask("nodes")["pages"]
    found["stopped"] = interleave("stop", hold)
    hold.end()
    return found


def damon_quota(mib: int) -> Document:
    """Have DAMON move at a rate; returns the requested and the measured MiB/s.

    On a busy host the looks, or DAMON itself, may be late. Then measure once more.
    """
    for _ in range(QUOTA_TRIES):
        found = quota_once(mib)
        near = abs(found["seen_mib_per_s"] / found["wanted_mib_per_s"] - 1) < 0.1
        if near and found["late_s"] < found["took_s"] * QUOTA_LATE:
            break
    return found


def quota_once(mib: int) -> Document:
    """Measure the rate by the starts of chunks; also returns the longest gap of looks.

    DAMON moves memory in chunks. The first has begun when the tool returns, at an
    unknown time. So measure from the second chunk to a later one.
    """
    size_mib, chunks = (100, 4) if mib >= THOROUGH_MIB else (mib // 8, 3)
    hold = Hold("-b", f"{size_mib * (chunks + 3)}M", "-s", "4K")
    quota_words = ("--quota", f"{size_mib}M/1s")
    interleave("start", hold, "--weights", "0=0,1=1", "--by", "kernel", *quota_words)
    begins: list[float] = []
    unseen: list[float] = []
    looked = time.monotonic()
    while len(begins) <= chunks + 1:
        moved_mib = hold.ask("nodes")["pages"][1] / 256
        now = time.monotonic()
        # Other memory of the process may be among it.
        while moved_mib > (len(begins) + 0.05) * size_mib:
            begins.append(now)
            unseen.append(now - looked)
        looked = now
        time.sleep(0.02)
    interleave("stop", hold)
    hold.end()
    last = chunks + 1
    took_s = begins[last] - begins[1]
    return {
        "wanted_mib_per_s": size_mib,
        "seen_mib_per_s": chunks * size_mib / took_s,
        "begins_s": [round(begin - begins[1], 3) for begin in begins],
        "took_s": took_s,
        "late_s": max(unseen[1], unseen[last]),
    }


def hot(mib: int) -> Document:
    """Have DAMON move memory in use, and leave idle memory."""
    found: Document = {}
    for name, options in (("used", ["-w"]), ("idle", [])):
        hold = Hold("-b", f"{mib}M", "-s", "4K", *options)
        words = ("--weights", "0=0,1=1", "--hot")
        found[name] = interleave("start", hold, *words)
        begin = time.monotonic()
        # On a busy host the program hardly runs, and its memory looks idle.
        while time.monotonic() - begin < (300 if options else 4):
            nodes = hold.ask("nodes")["pages"]
            # A page that migrates is on neither node.
            if options and nodes[1] == mib * 256:
                break
            time.sleep(0.2)
        interleave("stop", hold)
        found[name] |= {"nodes": nodes, "verified": hold.ask("verify")}
        hold.end()
    return found


# As in the posted text, except for the name of the destination file.
DAMO = """
kdamonds:
- contexts:
  - ops: vaddr
    targets:
    - pid: {pid}
      regions: []
    intervals:
      sample_us: 500 ms
      aggr_us: 5 s
      ops_update_us: 20 s
    nr_regions:
      min: '20'
      max: '50'
    schemes:
    - action: migrate_hot
      dests:
      - id: 0
        weight: 1
      - id: 1
        weight: 1
"""


def numastat(pid: str) -> list[float]:
    """Read the last line of numastat -c -p: MB on each node, and the sum."""
    done = subprocess.run(
        ["numastat", "-c", "-p", pid], capture_output=True, text=True, check=True
    )
    last = next(line for line in done.stdout.splitlines() if line.startswith("Total"))
    return [float(word) for word in last.split()[1:]]


def damo(mib: int) -> Document:
    """Interleave by damo, and check with numastat."""
    hold = Hold("-b", f"{mib}M", "-s", "4K")
    Path("/tmp/damo.yaml").write_text(DAMO.format(pid=hold.pid))
    command = [str(Path(sys.executable).parent / "damo"), "start", "/tmp/damo.yaml"]
    started = subprocess.run(
        command,
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "HOME": "/tmp"},
    )
    begin = time.monotonic()
    seen = numastat(hold.pid)
    while not started.returncode and abs(seen[0] - seen[1]) > 1:
        if time.monotonic() - begin > 300:
            break
        time.sleep(0.5)
        seen = numastat(hold.pid)
    verified = hold.ask("verify")
    hold.end()
    said = started.stdout + started.stderr
    seconds = round(time.monotonic() - begin, 1)
    found = {"code": started.returncode, "said": said, "took_s": seconds}
    return {**found, "megabytes": seen, "verified": verified}


BALANCE = """
source = "recorded"
record = "/tmp/load.csv"
interval = "200ms"
hold = "500ms"
metrics = "/tmp/balance.prom"
[bandwidth]
0 = 72.0
1 = 26.0
[[process]]
name = "hold"
"""
LOAD = "time_s,demand\n0,54e9\n1,108e9\n12,54e9\n"


def balance(mib: int) -> Document:
    """Replay a recorded load, and follow the placement of memory."""
    hold = Hold("-b", f"{mib}M", "-s", "4K")
    hold.ask("nodes")
    Path("/tmp/balance.toml").write_text(BALANCE)
    Path("/tmp/load.csv").write_text(LOAD)
    meanwhile: list[list[int]] = []
    over = threading.Event()

    def look() -> None:
        # Repeat: a guest takes an unknown time to start the tool.
        while not over.wait(0.3):
            meanwhile.append(hold.ask("nodes")["pages"])

    looking = threading.Thread(target=look)
    looking.start()
    done = tool("balance", "--config", "/tmp/balance.toml", "--for", "24s")
    over.set()
    looking.join()
    after = hold.ask("nodes")["pages"]
    verified = hold.ask("verify")
    hold.end()
    metrics = Path("/tmp/balance.prom").read_text()
    found = {"done": done, "meanwhile": meanwhile, "after": after}
    return {**found, "verified": verified, "metrics": metrics}


TRACING = Path("/sys/kernel/tracing")
EVENTS = ("damon/damos_before_apply", "migrate/mm_migrate_pages")
# Each round gives one time.
ROUNDS = 7


def trace_span_s() -> float:
    """Read how long DAMON worked: to the end of the last migration."""
    begin = end = 0.0
    lines = (TRACING / "trace").read_text().splitlines()
    for line in (line for line in lines if not line.startswith("#")):
        found = re.search(r"(\d+\.\d+): (\w+): (.*)", line)
        assert found is not None, line
        if found[2] == "mm_migrate_pages" and begin:
            end = float(found[1])
        elif found[2] == "damos_before_apply" and not begin:
            begin = float(found[1])
    return end - begin


def trace_rests(quiet_s: float = 3.0, limit_s: float = 30.0) -> None:
    """Wait until DAMON has migrated memory, and then nothing for a while.

    Do not ask the tool: its start, and its look at each page, take time from DAMON that
    move_pages(2) has for itself. So does reading the trace.
    """
    begin = time.monotonic()
    seen = 0
    while time.monotonic() - begin < limit_s:
        time.sleep(quiet_s)
        # Read only the end: the trace also grows while a scheme has nothing to move.
        now = (TRACING / "trace").read_text().count("mm_migrate_pages:")
        if now and now == seen:
            return
        seen = now


def speed(mib: int, folio: str) -> Document:
    """Time DAMON and move_pages(2) on the same memory, in turns."""
    if not (TRACING / "trace").exists():
        subprocess.run(["mount", "-t", "tracefs", "none", str(TRACING)], check=True)
    (TRACING / "trace_clock").write_text("mono")
    # Do this once. The kernel patches its own code with breakpoints, and QEMU before
    # 8.1 may keep executing these.
    for event in EVENTS:
        (TRACING / "events" / event / "enable").write_text("1")
    hold = Hold("-b", f"{mib}M", "-s", folio)
    found: Document = {"damon_s": [], "move_pages_s": []}
    words = ("--weights", "0=0,1=1", "--by", "kernel")
    for _ in range(ROUNDS):
        (TRACING / "trace").write_text("")
        interleave("start", hold, *words)
        trace_rests()
        settled(hold.pid)
        interleave("stop", hold)
        assert hold.ask("nodes")["pages"][1] == mib * 256
        found["damon_s"].append(trace_span_s())
        took = hold.ask("move 0")
        assert hold.ask("nodes")["pages"][0] == mib * 256
        found["move_pages_s"].append(took["elapsed_ns"] / 1e9)
    found["verified"] = hold.ask("verify")
    hold.end()
    return found


def rates(_mib: int) -> Document:
    """Read the known bandwidths of the nodes, and measure them."""
    known, source = bandwidth.find(Files(), {})
    return {"known": known, "source": source, "measured": tool("balance", "--measure")}


CASES: dict[str, Callable[[int], Document]] = {
    "shares-4K": lambda mib: shares(mib, "4K"),
    "shares-64K": lambda mib: shares(mib, "64K"),
    "shares-2M": lambda mib: shares(mib, "2M"),
    "writing-4K": lambda mib: shares(mib, "4K", "-w"),
    "writing-2M": lambda mib: shares(mib, "2M", "-w"),
    "damon-4K": lambda mib: damon(mib, "4K"),
    "damon-64K": lambda mib: damon(mib, "64K"),
    "damon-2M": lambda mib: damon(mib, "2M"),
    "auto": auto,
    "full": full,
    "ends": ends,
    "quota": quota,
    "damon-full": damon_full,
    "damon-quota": damon_quota,
    "hot": hot,
    "empty": empty,
    "areas": lambda _mib: areas("user"),
    "damon-areas": lambda _mib: areas("kernel"),
    "others": others,
    "balance": balance,
    "rates": rates,
    "speed-4K": lambda mib: speed(mib, "4K"),
    "speed-2M": lambda mib: speed(mib, "2M"),
    "damo": damo,
}


def main() -> None:
    """Run the named cases."""
    mib = int(sys.argv[2])
    found: Document = {}
    for name in sys.argv[3:]:
        begin = time.monotonic()
        found[name] = CASES[name](mib)
        found[name]["case_seconds"] = round(time.monotonic() - begin, 2)
    json.dump(found, sys.stdout)


if __name__ == "__main__":
    main()
