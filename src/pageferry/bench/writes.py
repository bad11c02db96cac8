# SPDX-License-Identifier: GPL-2.0-only
"""The writes of the programs of bench/ on a live machine, for --dry-run."""

from __future__ import annotations

_OFFLOAD = "write /sys/kernel/mm/migrate_offload"
_DEBUG = "write /sys/kernel/debug/migrate_offload"

# With any engines of a plan.
ENGINES = (
    f"{_OFFLOAD}/{{engine,batch_ptes,copy_routine}}, engine_of/*",
    f"{_DEBUG}/{{engine_always,verify}}",
    "write /sys/module/mtcopy/parameters/max_threads",
    "write /sys/module/dcbm/{nr_dma_chan,offloading}",
)
DMA_TIMEOUT = "write /sys/module/dcbm/parameters/timeout_ms"
POOLS = "write /sys/devices/system/node/node*/hugepages/hugepages-*kB/nr_hugepages"
FOLIO_SIZES = "write /sys/kernel/mm/transparent_hugepage/hugepages-*kB/enabled"
OTHER_MIGRATION = "write /proc/sys/kernel/numa_balancing, ksm/run, khugepaged/defrag"
# Where huge pages are needed and missing: nothing to restore.
COMPACTED = "write 1 to /proc/sys/vm/compact_memory, if memory is fragmented"
# Where a tracepoint is read: see bench/common/tracing.c.
TRACING = "make an instance of tracefs, with options/record-cmd off, and remove it"
# With --channel-percent.
RATES = (
    "write /sys/kernel/debug/dmasim/*/chan*/bandwidth_mbps, in the end what dmasim was"
    " loaded with"
)


def of_limit(max_unmapped_us: int | None) -> list[str]:
    """Describe the write of --max-unmapped-us."""
    return [] if max_unmapped_us is None else [f"{_OFFLOAD}/max_unmapped_us"]
