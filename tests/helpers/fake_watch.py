# SPDX-License-Identifier: GPL-2.0-only
"""A kernel's counters and trace in a directory, for `top` and the exporter."""

from __future__ import annotations

import os
from pathlib import Path

INSTANCE = f"sys/kernel/tracing/instances/pageferry-{os.getpid()}"
OFFLOAD = "sys/kernel/mm/migrate_offload"

STOCK = {
    "proc/vmstat": "nr_free_pages 5\npgmigrate_success 100\npgmigrate_fail 1\n",
    "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal: 4096 kB",
    "sys/devices/system/node/node2/meminfo": "Node 2 MemTotal: 4096 kB",
    "sys/devices/system/node/node0/vmstat": "pgpromote_success 5\npgdemote_kswapd 7\n",
    "sys/devices/system/node/node2/vmstat": "pgpromote_success 0\npgdemote_kswapd 0\n",
}
OURS = {
    "engine": "mtcopy",
    "available_engines": "none cpu mtcopy",
    "max_unmapped_us": "750",
    "held_folios": "0",
    "stats/reasons/demotion/engine_bytes": "4096",
    "stats/reasons/demotion/cpu_bytes": "0",
    "stats/reasons/demotion/declined_folios": "0",
    "stats/reasons/demotion/unmapped_hist": "1024 10",
    "stats/reasons/demotion/unmapped_max_ns": "1100",
    "stats/reasons/demotion/unmapped_sum_ns": "10500",
    "stats/engines/mtcopy/engine_bytes": "4096",
    "stats/engines/mtcopy/engine_ns": "1000",
}


def write(root: Path, files: dict[str, str]) -> None:
    """Write files, each with its directories. A reader sees no half of a file."""
    new = root / "new"
    for name, text in files.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        new.write_text(text + "\n")
        new.replace(path)


def stock(root: Path) -> None:
    """Fake a stock kernel that can be traced."""
    write(root, STOCK)
    event = "events/migrate/mm_migrate_pages/enable"
    write(root, {f"sys/kernel/tracing/{event}": "0"})
    write(root, {f"{INSTANCE}/{name}": "0" for name in (event, "buffer_size_kb")})
    (root / INSTANCE / "trace_pipe").write_text("")


def ours(root: Path) -> None:
    """Add the files of pageferry's kernel, a DMA channel and a cgroup."""
    write(root, {f"{OFFLOAD}/{name}": text for name, text in OURS.items()})
    channel = "sys/module/dcbm/channels/dma0chan0"
    write(root, {f"{channel}/bytes": "0", f"{channel}/state": "busy"})
    write(root, {"sys/fs/cgroup/cgroup.controllers": "memory"})
    write(root, {"sys/fs/cgroup/web/memory.stat": "anon 1\nmigrate_bytes 0"})


def say(root: Path, *lines: str) -> None:
    """Add lines to the trace."""
    with (root / INSTANCE / "trace_pipe").open("a") as pipe:
        pipe.write("".join(f"{line}\n" for line in lines))


def migrated(task: str, reason: str, moved: int, failed: int = 0) -> str:
    """Format the event as the kernel does."""
    return (
        f"{task:>22} [001] ..... 12.345678: mm_migrate_pages: nr_succeeded={moved} "
        f"nr_failed={failed} nr_thp_succeeded=0 nr_thp_failed=0 nr_thp_split=0 "
        f"nr_split=0 mode=MIGRATE_SYNC reason={reason}"
    )
