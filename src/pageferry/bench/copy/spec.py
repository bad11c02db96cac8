# SPDX-License-Identifier: GPL-2.0-only
"""`bench copy`: the kernel's copy routines in user space."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from statistics import median
from typing import ClassVar

import msgspec

from pageferry.bench import options, rows
from pageferry.bench.lines import Line, Moved
from pageferry.bench.options import option
from pageferry.bench.plan import Plan
from pageferry.bench.spec import Benchmark
from pageferry.errors import usage_error
from pageferry.report import tables
from pageferry.results.schema import Copy, RatioSpread, Result, Row
from pageferry.units import BASE_BYTES, GIB, PMD_BYTES, format_size, parse_size, whole

KERNEL_ROUTINES = ("pages", "nontemporal", "direct")
ROUTINES = (*KERNEL_ROUTINES, "string", "wide")
MEMORIES = ("cold", "read", "warm", "boot")
BOOT = "boot"
# Another routine than "pages" must need less than 15/16 of the time.
MARGIN = 16
# Smaller folios are copied page by page.
LARGE_BYTES = 256 << 10
MAX_THREADS = 64

DESCRIPTION = """\
Copy memory in user space with the routines that the kernel has for migration:
"pages", "nontemporal" and "direct". For comparison, also with one instruction for
each chunk ("string"), and with vector registers ("wide"). A thread on another CPU
follows pointers in its L2 cache meanwhile: "others" is its speed, compared with its
speed alone. Every byte of every copy is verified.

Runs on this machine, needs neither root nor a kernel of pageferry, and changes no
setting. It says which routine the kernel would choose. Only on x86-64."""

EPILOG = """\
examples:
  pageferry bench copy
  pageferry bench copy --sizes 4K,64K,2M,1G --threads 1,4,16 --total 2G
"""

OPTIONS = (
    option("--sizes", "of chunks, 4K to 1G", "LIST", "4K,32K,256K,2M"),
    option("--threads", "threads that copy at once", "LIST", "1"),
    option(
        "--routines",
        f"some of {', '.join(ROUTINES)} (default: all that the CPU has)",
        "LIST",
    ),
    option("--total", "memory to copy; as much again is the copy", "SIZE", "256M"),
    option("--chase", "memory of the other thread (default: its L2 cache)", "SIZE"),
    options.ROUNDS,
    *options.ENDING,
)


class Copied(Moved, tag="copy", kw_only=True):
    """Memory that one routine copied."""

    memory: str
    # Null: no CPU was left, or the thread ran too little.
    chase_alone_per_s: int | None = None
    chase_beside_per_s: int | None = None


@dataclass(frozen=True, kw_only=True)
class CopyPlan(Plan):
    """The plan of one run."""

    program: ClassVar[str] = "copy"

    routines: tuple[str, ...] = ()
    chase_bytes: int | None = None

    def arguments(self) -> list[str]:
        """Return the options of the program."""
        words = [
            "--sizes=" + ",".join(map(str, self.sizes)),
            "--threads=" + ",".join(map(str, self.threads)),
            f"--total-bytes={self.total_bytes}",
            f"--rounds={self.rounds}",
        ]
        if self.routines:
            words.append("--routines=" + ",".join(self.routines))
        if self.chase_bytes is not None:
            words.append(f"--chase-bytes={self.chase_bytes}")
        return words

    def measurements(self) -> int:
        """Count the lines, for the progress bar."""
        kinds = len(self.sizes) * len(self.threads) * (len(MEMORIES) - 1) + 1
        return kinds * len(self.routines or ROUTINES) * (self.rounds + 1)


def make_plan(args: argparse.Namespace) -> CopyPlan:
    """Check the options before anything is built."""
    sizes = options.parse_powers(
        *(args.sizes, BASE_BYTES, GIB, "a size of chunks"),
        "a power of two from 4K to 1G",
    )
    total = parse_size(args.total)
    largest = max(PMD_BYTES, *sizes)
    if not total or total % largest:
        raise usage_error(
            *("total is not a multiple of the largest size, or of 2M", args.total),
            f"{largest >> 20}M",
        )
    cpus = min(MAX_THREADS, len(os.sched_getaffinity(0)))
    routines = args.routines
    return CopyPlan(
        sizes=sizes,
        engines=(),
        threads=options.parse_list(args.threads, "a number of threads", 1, cpus),
        total_bytes=total,
        rounds=whole("--rounds", args.rounds, 1, 10_000),
        routines=()
        if routines is None
        else options.words_of(routines, ROUTINES, "routine"),
        chase_bytes=None if args.chase is None else _chase_bytes(args.chase),
    )


def _chase_bytes(text: str) -> int:
    found = parse_size(text)
    if not found or found % 64 or found > 16 * GIB:
        raise usage_error(
            "--chase is not a multiple of a cache line, 64 bytes", text, "at most 16G"
        )
    return found


def choose(speeds: dict[str, float]) -> str | None:
    """Choose as mm/migrate_offload/copy_routine.c does; None: not all are known."""
    if "pages" not in speeds:
        return None
    least = speeds["pages"] * MARGIN / (MARGIN - 1)
    faster = {
        name: speed
        for name in KERNEL_ROUTINES
        if (speed := speeds.get(name, 0)) > least
    }
    return max(faster, key=lambda name: faster[name], default="pages")


def _chased(mine: Sequence[Copied]) -> tuple[int | None, RatioSpread | None]:
    known = [
        (s.chase_alone_per_s, s.chase_beside_per_s)
        for s in mine
        if s.chase_alone_per_s and s.chase_beside_per_s is not None
    ]
    if not known:
        return None, None
    ratios = [beside / alone for alone, beside in known]
    return round(median(alone for alone, _ in known)), RatioSpread(
        median=median(ratios), min=min(ratios), max=max(ratios)
    )


def _with_choice(found: Sequence[Row]) -> Iterable[Row]:
    # The kernel keeps the shortest time.
    chosen = choose(
        {
            row.engine: row.bytes_per_s.max
            for row in found
            if row.copy.memory == BOOT and row.bytes_per_s is not None
        }
    )
    for row in found:
        if row.copy.memory == BOOT:
            copy = msgspec.structs.replace(
                row.copy, kernel_chooses=chosen and row.engine == chosen
            )
            row = msgspec.structs.replace(row, copy=copy)
        yield row


def make_rows(_: CopyPlan, lines: Sequence[Line]) -> list[Row]:
    """Turn measurements into rows."""

    def own(mine: list[Copied], _: rows.Rates) -> dict[str, Copy]:
        alone, ratio = _chased(mine)
        return {
            "copy": Copy(
                memory=mine[0].memory, chase_alone_per_s=alone, chase_ratio=ratio
            )
        }

    samples = rows.counted(lines, Copied)
    found = rows.compared("copy", samples, lambda s: (s.memory, s.folio_bytes), own)
    found.sort(
        key=lambda r: (
            MEMORIES.index(r.copy.memory or BOOT),
            r.threads,
            r.folio_bytes,
            rows.rank(r, ROUTINES),
        )
    )
    return list(_with_choice(found))


def choice_lines(found: Sequence[Row]) -> list[str]:
    """Say what the kernel would choose on a machine as fast as this one."""
    return [
        f"At boot the kernel would choose {row.engine} for folios of "
        f"{format_size(LARGE_BYTES)} or more."
        for row in found
        if row.copy.kernel_chooses
    ]


def show(result: Result) -> list[str]:
    """Lay out a result."""
    columns = (
        ("memory", lambda row: row.copy.memory or ""),
        ("threads", lambda row: str(row.threads)),
        ("chunk", lambda row: format_size(row.folio_bytes)),
        ("routine", lambda row: row.engine),
        *tables.rate_columns("GB/s", 1e9, 2),
        ("others", lambda row: tables.ratio(row.copy.chase_ratio)),
    )
    copied = sum(row.moved_bytes * row.rounds for row in result.rows)
    parts = [
        tables.machine_line(result),
        tables.table(result.rows, columns),
        "\n".join(choice_lines(result.rows)),
        f"{format_size(copied)} copied, every byte verified",
    ]
    return [part for part in parts if part]


SPEC = Benchmark(
    name="copy",
    about="the kernel's copy routines in user space, on this machine",
    description=DESCRIPTION,
    epilog=EPILOG,
    native=True,
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Copied,),
    make_rows=make_rows,
    show=show,
)
