# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction`."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from typing import ClassVar

from pageferry.bench import options, writes
from pageferry.bench.compaction.rows import Compaction, make_rows, warn_of_few
from pageferry.bench.compaction.table import show, show_published
from pageferry.bench.options import option
from pageferry.bench.plan import BASE_S, Plan
from pageferry.bench.spec import Benchmark
from pageferry.errors import usage_error
from pageferry.units import PMD_BYTES, format_size, parse_size, whole

# The CPU is idle, or busy with a hog.
STATES = ("idle", "busy")
MODULE = "migrate_compact_test"
# Descriptors of a simulated channel. Like devices, it has more than dcbm uses.
DESCRIPTORS = 512
# The delay by which completions may share one timer and one interrupt. With a timer for
# each page, the measured CPU took longer, too.
COALESCE_US = 100
# Time to fragment, verify and compact with emulated CPUs and little memory.
MEASUREMENT_S = 60.0

DESCRIPTION = """\
Fragment a NUMA node, then allocate huge pages there with a kernel module on one CPU,
so that Linux compacts. The result is the time, the load of that CPU, and the work of
another program on it. All engines and stock Linux take turns in each round; the first
round does not count. The benchmark verifies every byte of the memory that stayed.

Takes most of the node's free memory meanwhile, and frees it again. Runs on this machine
if it has pageferry's kernel, else in a VM with simulated DMA channels."""

EPILOG = """\
examples:
  pageferry bench compaction --published
  pageferry bench compaction --engines dcbm --states idle --rounds 10 --vm
"""

OPTIONS = (
    option("--engines", "stock is always measured", "LIST", "stock,off,dcbm"),
    option("--states", "other load of the CPU", "LIST", ",".join(STATES)),
    *options.ONE_OF_EACH,
    option("--channel-percent", "or percent of stock's migration rate", "N", "0"),
    option("--total", "memory to map; auto: half of the free memory", "SIZE", "auto"),
    option("--count", "huge pages; 0: one for 8 blocks of 2M", "N", "0"),
    options.ROUNDS,
    option("--node", "node to fragment (default: first with memory)", "N"),
    option("--cpu", "CPU that allocates (default: the node's first)", "N"),
    options.REACH,
    options.LAYOUTS,
    options.TIMEOUT,
    options.PUBLISHED,
    *options.ENDING,
)


@dataclass(frozen=True, kw_only=True)
class CompactionPlan(Plan):
    """The plan of one run. from_node and to_node are equal here."""

    program: ClassVar[str] = "compaction"

    # The number of huge pages to allocate.
    sizes: tuple[int, ...] = (PMD_BYTES,)
    states: tuple[str, ...]
    # 0: follows from total_bytes, or if that is 0, from half of the free memory.
    count: int
    cpu: int | None = None
    # The speed of each channel, in percent of the rate at which stock migrates.
    # 0: channel_mbps. It also holds until that rate is known.
    channel_percent: int = 0

    def modules(self) -> list[str]:
        """List the kernel modules of the engines, and the allocating module."""
        return [*super().modules(), MODULE]

    def simulated(self) -> dict[str, str]:
        """List the modules that simulate hardware, with their parameters."""
        if "dcbm" not in self.engines:
            return {}
        rate = f"bandwidth_mbps={self.channel_mbps}"
        # The simulated device gets its own CPU, so that its work does not count.
        cpu = f"cpu={0 if self.cpu else 1} coalesce_us={COALESCE_US}"
        channels = f"channels={max(self.channels)} descriptors={DESCRIPTORS}"
        return {"dmasim": f"{channels} {rate} {cpu}"}

    def arguments(self) -> list[str]:
        """Return the options of bench/compaction."""
        words = [
            f"--node={self.from_node}",
            f"--total-bytes={self.total_bytes}",
            f"--count={self.count}",
            "--states=" + ",".join(self.states),
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
            *self.limit_words(),
        ]
        if self.cpu is not None:
            words.append(f"--cpu={self.cpu}")
        if self.channel_percent and "dcbm" in self.engines:
            words.append(f"--channel-percent={self.channel_percent}")
        return words

    def kinds(self) -> int:
        """Count the measurements of each variant in a round."""
        return len(self.states)

    def limit_s(self) -> float:
        """Return the time limit of a virtual machine for each boot."""
        return BASE_S + self.measurements() * MEASUREMENT_S

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        return [
            writes.OTHER_MIGRATION,
            "write /proc/sys/vm/"
            "{compaction_proactiveness,percpu_pagelist_high_fraction,"
            "watermark_boost_factor}",
            *writes.of_limit(self.max_unmapped_us),
        ]

    def leaves(self, *, live: bool) -> list[str]:
        """List its other effects on this machine, or on a virtual one."""
        total = self.total_bytes
        mapped = format_size(total) if total else "half of what is free"
        takes = f"map {mapped} on node {self.from_node}, and free every other page"
        if not live:
            return [takes]
        return [
            *([writes.RATES] if self.channel_percent else []),
            "write /sys/kernel/debug/migrate_compact_test/{node,count,drain,run,free}",
            takes,
            "take all free blocks of 2M there, for the time of a measurement",
        ]


def parse_total(text: str) -> int:
    """Parse the amount of mapped memory; auto is 0."""
    total = 0 if text == "auto" else parse_size(text)
    if total % PMD_BYTES or (not total and text != "auto"):
        raise usage_error(
            "total is not a multiple of 2M", text, "auto: half of what is free"
        )
    return total


def make_plan(args: argparse.Namespace) -> CompactionPlan:
    """Check the options before any build or boot."""
    node = whole("--node", args.node, 0, 63)
    return CompactionPlan(
        engines=options.parse_engines(args.engines),
        states=options.words_of(args.states, STATES, "state"),
        total_bytes=parse_total(args.total),
        count=whole("--count", args.count, 0, 1 << 32),
        from_node=node,
        to_node=node,
        channel_percent=whole("--channel-percent", args.channel_percent, 0, 100_000),
        cpu=None if args.cpu is None else whole("--cpu", args.cpu, 0, 1023),
        **options.one_of_each(args),
    )


SPEC = Benchmark(
    name="compaction",
    about="time and CPU time for huge pages on a fragmented node",
    description=DESCRIPTION,
    epilog=EPILOG,
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Compaction,),
    make_rows=make_rows,
    show=show,
    simulated_apart=True,
    warn=warn_of_few,
    published={True: ("compaction_rfc_v4",)},
    show_published=show_published,
)
