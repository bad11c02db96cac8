#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Stands for bench/move_pages on a fake kernel, whose counters it advances.

The file `behave` in the fake tree selects a behaviour: `well`, `mismatch` (the kernel
finds wrong copies), `wrong` (a byte is wrong), `wrong-later` (in the background),
`late` (transfers time out), `held` (and stay away), `slow-4k`, `kernel-lacks`,
`pins` (it restores settings at its end, which takes long).
"""

import contextlib
import json
import os
import sys
import time
from pathlib import Path

ROOT = Path(os.environ["PAGEFERRY_SYSFS_ROOT"])
DCBM = ROOT / "sys/module/dcbm"
ENGINE = ROOT / "sys/kernel/mm/migrate_offload/stats/engines/dcbm"
DMASIM = ROOT / "sys/kernel/debug/dmasim"
PINNED = (ROOT / "proc/sys/kernel/numa_balancing", DCBM / "parameters/timeout_ms")
BEHAVE = (ROOT / "behave").read_text().strip()
OPTIONS = dict(word[2:].partition("=")[::2] for word in sys.argv[1:])


def say(kind: str, **fields: object) -> None:
    sys.stdout.write(json.dumps({"type": kind, **fields}) + "\n")
    sys.stdout.flush()


def add(path: Path, number: int) -> None:
    # The test may remove the file, or write it, at the same time.
    with contextlib.suppress(OSError, ValueError):
        value = int(path.read_text())
        with path.open("r+") as stream:
            stream.write(f"{value + number}\n")


def fail(code: int, message: str) -> None:
    say("error", exit=code, message=message)
    sys.exit(code)


def copy(size: int, channels: int) -> None:
    """Advance the counters of dcbm and of a simulated device."""
    add(ENGINE / "engine_folios", 8)
    if BEHAVE == "mismatch":
        add(ENGINE / "mismatched_folios", 1)
    for name in sorted(DCBM.glob("channels/*")):
        add(name / "bytes", size)
        if BEHAVE in ("late", "held"):
            add(name / "timeouts", 1)
        if BEHAVE == "held":
            add(name / "in_doubt", 3)
    for fault, counter in (("fail", "errors"), ("hide_error", "hidden")):
        for switch in DMASIM.glob(f"*/*/{fault}_every"):
            if switch.read_text().strip() == "0":
                continue
            add(switch.parent / counter, 2)
            heard = 0 if fault == "hide_error" and BEHAVE == "deaf" else 2
            add(DCBM / "channels/dma0chan0/errors", heard)


def elapsed_ns(engine: str, size: int, channels: int) -> int:
    if engine == "cpu":
        return 40_000
    # More than four channels give nothing.
    return 80_000 // min(max(channels, 1), 4)


def engine_ns(size: int) -> int:
    return 100_000 if size >= 65536 else 400_000


def measure(variant: str, size: int, round_nr: int, total: int) -> None:
    engine, _, option = variant.partition(":")
    channels = int(option.partition("=")[2] or 0)
    if engine == "dcbm":
        copy(size, channels)
    say(
        "measurement",
        engine=engine,
        threads=1,
        channels=channels,
        round=round_nr,
        verified=True,
        engine_bytes=total if engine == "dcbm" else None,
        engine_ns=engine_ns(size) if engine == "dcbm" else None,
        folio_bytes=size,
        moved_bytes=total,
        elapsed_ns=elapsed_ns(engine, size, channels),
        busy=False,
    )


def main() -> None:
    say("environment", bench="move-pages", release="6.12", version="#1")
    rounds, total = int(OPTIONS["rounds"]), int(OPTIONS["total-bytes"])
    if BEHAVE == "kernel-lacks":
        fail(3, "engine 'dcbm' is not available")
    endless = rounds > 100
    for round_nr in range(rounds + 1):
        for size in map(int, OPTIONS["sizes"].split(",")):
            for variant in OPTIONS["variants"].split(","):
                measure(variant, size, round_nr, total)
        if BEHAVE == "wrong" or (BEHAVE == "wrong-later" and endless):
            fail(1, "engine dcbm, round 0: byte 4096 is wrong")
        if endless:
            time.sleep(0.002)
    say("done", rounds=rounds)


def pinned() -> None:
    found = [(path, path.read_text()) for path in PINNED]
    PINNED[0].write_text("0\n")
    try:
        main()
    finally:
        time.sleep(0.5)
        for path, value in found:
            path.write_text(value)


if BEHAVE == "pins":
    pinned()
else:
    main()
