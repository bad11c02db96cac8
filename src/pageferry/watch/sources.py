# SPDX-License-Identifier: GPL-2.0-only
"""Counters of the kernel at one time; all of them only grow."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.offload import Offload, State

Counters = dict[str, int]

_CGROUPS = "/sys/fs/cgroup"
_CHANNELS = "/sys/module/dcbm/channels"
# Deeper cgroups count in those above.
_DEPTH = 3
VMSTAT = ("pgmigrate_success", "pgmigrate_fail")
PROMOTED = "pgpromote_success"
DEMOTED = "pgdemote_"
# Counters of a cgroup, which only pageferry's kernel has.
MIGRATED_BYTES = "migrate_bytes"
ENGINE_BYTES = "migrate_engine_bytes"


@dataclass(frozen=True)
class Snapshot:
    """All counters."""

    at_ns: int
    vmstat: Counters
    nodes: dict[int, Counters]
    # The tier of each node that has memory; None if the kernel does not show it.
    tiers: dict[int, int | None]
    cgroups: dict[str, Counters]
    # On other kernels than pageferry's, these are None, 0 or empty.
    state: State | None = None
    held_folios: int = 0
    reasons: dict[str, Counters] = field(default_factory=dict)
    engines: dict[str, Counters] = field(default_factory=dict)
    times: dict[str, dict[str, Histogram]] = field(default_factory=dict)
    channels: dict[str, Counters] = field(default_factory=dict)
    busy_channels: int = 0


def take(files: Files, *, cgroups: bool = True) -> Snapshot:
    """Read all counters; those of cgroups take longest."""
    offload = Offload(files)
    ours = offload.is_present()
    channels = files.names(_CHANNELS)
    nodes = read_nodes(files)
    states = [files.read_or(f"{_CHANNELS}/{name}/state", "") for name in channels]
    return Snapshot(
        at_ns=time.monotonic_ns(),
        vmstat=_pick(files.read_or("/proc/vmstat", "")),
        nodes={
            node.number: _pick(
                files.read_or(f"/sys/devices/system/node/node{node.number}/vmstat", "")
            )
            for node in nodes
        },
        tiers={node.number: node.tier for node in nodes if node.total_bytes},
        cgroups=_cgroups(files) if cgroups else {},
        state=offload.read() if ours else None,
        held_folios=offload.held_folios() if ours else 0,
        reasons=offload.counters("reasons") if ours else {},
        engines=offload.counters("engines") if ours else {},
        times=offload.unmapped() if ours else {},
        channels={
            name: {
                counter: int(files.read_or(f"{_CHANNELS}/{name}/{counter}", "0"))
                for counter in ("bytes", "errors", "timeouts")
            }
            for name in channels
        },
        busy_channels=states.count("busy"),
    )


def _pick(text: str) -> Counters:
    """Keep the lines about migration of a file with names and numbers."""
    found: Counters = {}
    for line in text.splitlines():
        name, _, value = line.partition(" ")
        wanted = name in (*VMSTAT, PROMOTED, MIGRATED_BYTES, ENGINE_BYTES)
        if (wanted or name.startswith(DEMOTED)) and value.isdecimal():
            found[name] = int(value)
    return found


def _cgroups(files: Files) -> dict[str, Counters]:
    """Read the cgroups of version 2 that have such lines."""
    top = files.path(_CGROUPS)
    found: dict[str, Counters] = {}
    if not (top / "cgroup.controllers").exists():
        return found
    for directory, below, names in os.walk(top):
        path = Path(directory).relative_to(top)
        if len(path.parts) >= _DEPTH:
            below.clear()
        if "memory.stat" in names:
            text = files.read_or(f"{_CGROUPS}/{path}/memory.stat", "")
            counters = _pick(text)
            if counters:
                found[f"/{path}" if path.parts else "/"] = counters
    return found


def process_of(files: Files, pid: int, name: str) -> tuple[int, str]:
    """Return PID and name of the process of a thread, or those of an ended thread."""
    status = files.read_or(f"/proc/{pid}/status", "")
    match = re.search(r"^Tgid:\s*(\d+)$", status, re.MULTILINE)
    if match is None or int(match[1]) == pid:
        return pid, name
    process = int(match[1])
    return process, files.read_or(f"/proc/{process}/comm", name)


def demoted(counters: Counters) -> int:
    """Add up the pages that were demoted, for all causes."""
    return sum(n for name, n in counters.items() if name.startswith(DEMOTED))


def grown(before: Mapping[str, int], after: Mapping[str, int]) -> Counters:
    """Return the growth of each counter that grew."""
    return {
        name: value - before.get(name, 0)
        for name, value in after.items()
        if value > before.get(name, 0)
    }


def histogram_grown(before: Histogram | None, after: Histogram) -> Histogram:
    """Return the times of an interval."""
    old = dict(before.buckets) if before is not None else {}
    pairs = ((lower, count - old.get(lower, 0)) for lower, count in after.buckets)
    # The kernel keeps the longest time since boot: here it bounds the open bucket.
    return Histogram(tuple(pair for pair in pairs if pair[1] > 0), after.max_ns)
