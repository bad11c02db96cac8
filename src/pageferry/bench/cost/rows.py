# SPDX-License-Identifier: GPL-2.0-only
"""`bench cost`: instructions per folio, counted by the guest's own clock.

QEMU with icount makes one nanosecond of guest time one instruction. The same
image and initramfs give the same digits on every run. The place of data in
memory changes the figure of small folios by up to 1%. So each engine boots
several times, with initramfs images of different sizes and with different holes
in free memory. The result is the mean.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean

import msgspec

from pageferry.bench.counted import DISK
from pageferry.bench.lines import Line
from pageferry.bench.rows import Key, sort_by, total
from pageferry.errors import PageferryError
from pageferry.kernel.arch import ARM64, X86_64, Architecture
from pageferry.results import schema
from pageferry.results.schema import Row
from pageferry.units import KIB, MIB, format_size

# "unbatched" is our kernel with batch_ptes off: one page table entry at a time.
ENGINES = ("stock", "unbatched", "off", "cpu", "mtcopy", "dcbm")
# Kinds of 4K pages, in the order of the table. The default is runs.
PAGES = (
    *("runs", "random", "shared", "shared16", "shmem", "shmem16"),
    *("file", "file16", "mlocked", "ksm", "inherited", "mixed", "watched"),
)
# These take a disk, which moves the data of the kernel: only machines that measure them
# have one.
FILE_PAGES = ("file", "file16")
FILE_PATHS = ("cached",)
DEFAULT_PAGES = ("runs",)
# Callers, in the order of the rows and of a boot. Compaction comes last: it leaves the
# free pages scattered, which makes the next caller dearer. The default is move_pages(2).
MOVE_PAGES = "move_pages"
PATHS = (
    *(MOVE_PAGES, "mbind", "migrate_pages", "hugetlb"),
    *("demotion", "promotion", "cached", "tmpfs", "compaction"),
)
DEFAULT_PATHS = (MOVE_PAGES,)
# A kernel that splits other sizes does different work on each pass.
DEFAULT_SIZES = (4 * KIB, 2 * MIB)
# One channel: each more would add its interrupt, and the copy is not in the count.
DMA_CHANNELS = 1
# An odd number of pages: layouts differ in more than the last address bits.
PADDING_STEP_BYTES = 149 * 4 * KIB

# The count of the patched kernel may differ from stock by this share with everything
# turned off. Without an active engine it may exceed stock by the same share.
OFF_TOLERANCE = {4 * KIB: 0.005, 2 * MIB: 0.001}
# The same for callers other than move_pages(2). On 7.3, stock promotes in 8,507, and ours
# takes 116 more. Moving the folio takes some 80 of these, as GCC inlines less in ours.
PATH_TOLERANCE = 0.01
PATH_TOLERANCE_OF = {"7.3": 0.02}
# mtcopy on one CPU finds no idle one, and so declines every batch. If other work
# keeps all CPUs busy, mtcopy costs the same.
DECLINED_SHARE = 1 / 0.97

# UNALIKE_SHARE bounds pages that cannot move in runs, as a share of stock.
# BESIDES_COPY bounds the instructions of other pages, and of large folios, without the
# copy: 2% more than was measured. A change that raises a bound says why. Runs of shared
# pages and of page cache take 30 to 45 of all pages in runs, and spare 2,700 to 16,000 of
# their own. Runs of large folios take 16 of all pages, and spare 2,600 to 3,300 of a folio.
# CONFIG_BUG takes 6 in runs, and 22 on stock.
UNALIKE_SHARE = 1.02
BESIDES_COPY = {
    "runs": 1215,
    "mixed": 1405,
    "random": 2145,
    "inherited": 1330,
    "shared": 1655,
    "shared16": 6090,
    "shmem": 1810,
    "shmem16": 6370,
    "file": 1740,
    "file16": 6325,
    "16K": 3350,
    "32K": 3930,
    "64K": 4760,
    "128K": 7075,
    "256K": 11720,
    "512K": 20775,
}
BESIDES_COPY_OF = {
    "7.3": {
        "runs": 1340,
        "mixed": 1540,
        "random": 2385,
        "inherited": 1450,
        "shared": 1780,
        "shared16": 6320,
        "shmem": 1940,
        "shmem16": 7265,
        "file": 1870,
        "file16": 6535,
        "16K": 3315,
        "32K": 3855,
        "64K": 5115,
        "128K": 7450,
        "256K": 12065,
        "512K": 21125,
    }
}
# An arm64 processor copies in fewer instructions, and needs more for page tables.
BESIDES_COPY_ARM64 = {"runs": 1165, "random": 1870, "64K": 5320}

# The share of a folio's instructions that may remain if a DMA controller copies it. For
# 4K pages, which take 0.7 of theirs without a copy, all else is dearer then. Without our
# changes, a preemptible kernel such as 7.3 takes more for locks and interrupts. At 4K,
# scattered free memory needs more descriptors: two of three memory layouts have that.
DMA_SHARE = {4 * KIB: 1.29, 2 * MIB: 0.094}
DMA_SHARE_OF = {"7.3": {2 * MIB: 0.14}}


def default_engines(arch: Architecture) -> tuple[str, ...]:
    """List the engines that can be counted: only one machine has a DMA controller."""
    return ENGINES if arch is ARM64 else ENGINES[:-1]


def known_pages(arch: Architecture) -> tuple[str, ...]:
    """List the kinds of pages that can be counted: one kernel has no ext4."""
    return tuple(p for p in PAGES if arch is not ARM64 or p not in FILE_PAGES)


class Cost(Line, tag="cost", kw_only=True):
    """Several passes over one list of folios, there and back."""

    # The caller, and the folios that it moved in each pass. move_pages(2) has
    # neither, as it moves all of its list.
    path: str | None = None
    pass_folios: list[int] | None = None

    engine: str
    folio_bytes: int
    folios: int
    pass_ns: list[int]
    # The kind of base pages: see bench/common/pages.c.
    pages: str | None = None
    copy_instructions: int | None
    engine_bytes: int | None
    # The transfers of dcbm, and those of them that raised an interrupt.
    descriptors_per_1000_folios: int | None = None
    interrupts_per_1000_folios: int | None = None
    verified: bool
    # Counters of folios between 4K and 2M after all passes: stock Linux splits
    # them. The first pass is the first move of fresh memory.
    split_folios: int | None = None
    nr_anon_partially_mapped: int | None = None
    split: int | None = None
    split_deferred: int | None = None

    @property
    def changing(self) -> bool:
        """Return whether a move may change the folios."""
        return self.split_folios is not None

    @property
    def instructions_per_folio(self) -> float:
        """Return the mean of all passes that count, or the first of fresh memory."""
        if self.pass_folios is not None:
            return sum(self.pass_ns) / sum(self.pass_folios)
        return mean(self.pass_ns[:1] if self.changing else self.pass_ns) / self.folios

    @property
    def later_instructions_per_folio(self) -> float | None:
        """Return the mean of all moves but the first, per original folio."""
        return mean(self.pass_ns[1:]) / self.folios if self.changing else None


def init_arguments(
    engine: str,
    modules: Sequence[Path],
    layout: int,
    sizes: Sequence[int] = DEFAULT_SIZES,
    pages: Sequence[str] = DEFAULT_PAGES,
    paths: Sequence[str] = DEFAULT_PATHS,
) -> list[str]:
    """Return the arguments of /init, after "--" on the kernel command line."""
    variant = f"dcbm:channels={DMA_CHANNELS}" if engine == "dcbm" else engine
    if engine == "unbatched":
        variant = "stock"
    arguments = ["--engine", variant, "--scatter", str(layout)]
    if tuple(sizes) != DEFAULT_SIZES:
        arguments += ["--sizes", ",".join(str(size) for size in sizes)]
    if tuple(pages) != DEFAULT_PAGES:
        arguments += ["--pages", ",".join(pages)]
    if tuple(paths) != DEFAULT_PATHS:
        arguments += ["--paths", ",".join(paths)]
    if takes_disk(pages, paths):
        arguments += ["--image", f"/{DISK}"]
    for module in modules:
        arguments += ["--module", f"/{module.name}"]
    return arguments


def takes_disk(pages: Sequence[str], paths: Sequence[str]) -> bool:
    """Return whether a boot measures pages of files."""
    files = MOVE_PAGES in paths and {*FILE_PAGES} & {*pages}
    return bool(files or {*FILE_PATHS} & {*paths})


def samples_of(engine: str, lines: Sequence[Line]) -> list[Cost]:
    """Select the figures of one boot, with the tool's name of the engine."""
    samples = [
        msgspec.structs.replace(line, engine=engine)
        for line in lines
        if isinstance(line, Cost)
    ]
    for sample in samples:
        if not sample.verified or not sample.pass_ns:
            raise PageferryError("a measurement was not verified", value=engine)
    if not samples:
        raise PageferryError("a boot measured nothing", value=engine)
    return samples


def check_same(first: Sequence[Cost], again: Sequence[Cost]) -> None:
    """Compare two boots of the same image and initramfs, digit by digit."""
    for one, other in zip(first, again, strict=True):
        if one != other:
            raise PageferryError(
                "two runs of the same image gave different instruction counts",
                value=f"{one.engine}, {one.path or MOVE_PAGES}, "
                f"{format_size(one.folio_bytes)}",
                reason=f"{one.pass_ns} and then {other.pass_ns}",
                hint="something outside the guest reached it: not usable as a gate",
            )


def _kind(sample: Cost) -> Key:
    """Return path, folio size and pages, which sort rows of the same engine."""
    pages = PAGES.index(sample.pages) if sample.pages else -1
    return PATHS.index(sample.path or MOVE_PAGES), sample.folio_bytes, pages


def make_rows(samples: Sequence[Cost]) -> list[Row]:
    """Make one row for each engine and kind of folio."""
    grouped = sort_by(samples, lambda s: (_kind(s), ENGINES.index(s.engine)))
    means = {
        (kind, group[0].engine): mean(s.instructions_per_folio for s in group)
        for (kind, _), group in grouped.items()
    }
    copies = {}
    for (kind, _), group in grouped.items():
        known = [c for s in group if (c := s.copy_instructions) is not None]
        if known:
            copies[kind] = round(mean(known))
    return [
        _row(grouped[kind, nr], means, copies.get(kind)) for kind, nr in sorted(grouped)
    ]


def _mean(numbers: Sequence[int | None]) -> int | None:
    known = [number for number in numbers if number is not None]
    return round(mean(known)) if known else None


def _row(group: Sequence[Cost], means: Mapping[Key, float], copy: int | None) -> Row:
    figures = [sample.instructions_per_folio for sample in group]
    first = group[0]
    kind, engine = _kind(first), first.engine
    stock = means.get((kind, "stock"))
    later = [n for s in group if (n := s.later_instructions_per_folio) is not None]
    by_cpu = engine != "dcbm" and not (engine == "mtcopy" and first.engine_bytes)
    return Row(
        bench="cost",
        engine=engine,
        channels=DMA_CHANNELS if engine == "dcbm" else 0,
        threads=1,
        folio_bytes=first.folio_bytes,
        pages=first.pages,
        path=first.path,
        moved_bytes=first.folios * first.folio_bytes,
        rounds=len(first.pass_ns),
        verified=all(sample.verified for sample in group),
        # The program has checked folios that must stay whole.
        split_folios=None
        if first.path
        else max(sample.split_folios or 0 for sample in group),
        engine_bytes=total([sample.engine_bytes for sample in group]),
        ratio_to_stock=None if stock is None else means[kind, engine] / stock,
        instructions_per_folio=round(means[kind, engine]),
        copy_instructions=copy if by_cpu else None,
        layouts=len(group),
        cost=schema.Cost(
            instructions_per_folio_min=round(min(figures)),
            instructions_per_folio_max=round(max(figures)),
            later_instructions_per_folio=round(mean(later)) if later else None,
            partially_mapped_folios=first.nr_anon_partially_mapped,
            descriptors_per_1000_folios=_mean(
                [sample.descriptors_per_1000_folios for sample in group]
            ),
            interrupts_per_1000_folios=_mean(
                [sample.interrupts_per_1000_folios for sample in group]
            ),
        ),
    )


def _bounds(base: str | None, arch: Architecture) -> Mapping[str, int]:
    if arch is ARM64:
        # Those of 7.3 were not measured.
        return BESIDES_COPY_ARM64 if base != "7.3" else {}
    return BESIDES_COPY_OF.get(base or "", BESIDES_COPY)


def regressions(
    rows: Sequence[Row], base: str | None = None, arch: Architecture = X86_64
) -> list[str]:
    """Describe all failures of `--check`."""
    listed = [row for row in rows if row.path is None]
    return [
        *_costs_when_off(listed),
        *_spares_too_little_in_runs(listed, _bounds(base, arch)),
        *_costs_when_declined(listed),
        *_spares_too_little(listed, DMA_SHARE_OF.get(base or "", DMA_SHARE)),
        *_costs_elsewhere(rows, PATH_TOLERANCE_OF.get(base or "", PATH_TOLERANCE)),
    ]


def _costs_elsewhere(rows: Sequence[Row], tolerance: float) -> list[str]:
    """Find callers besides move_pages(2) whose cost differs from stock."""
    found = []
    for row in rows:
        if row.path is None or row.ratio_to_stock is None:
            continue
        costs = row.ratio_to_stock > 1 + tolerance
        spares = row.ratio_to_stock < 1 - tolerance
        if (costs and row.engine in ("off", "unbatched")) or (
            spares and row.engine == "unbatched"
        ):
            found.append(
                f"{row.engine} differs from stock by "
                f"{(row.ratio_to_stock - 1) * 100:+.2f}% in {row.path}, "
                f"{tolerance * 100:.0f}% is allowed"
            )
    return found


def _costs_when_declined(rows: Sequence[Row]) -> list[str]:
    """Find engines that cost too much while they decline all batches."""
    return [
        f"mtcopy declines every batch, but {format_size(row.folio_bytes)} cost "
        f"{(row.ratio_to_stock - 1) * 100:+.2f}% over stock, "
        f"{(DECLINED_SHARE - 1) * 100:.1f}% is allowed"
        for row in rows
        if row.engine == "mtcopy"
        and row.engine_bytes == 0
        and row.ratio_to_stock is not None
        and row.ratio_to_stock > DECLINED_SHARE
    ]


def _spares_too_little(rows: Sequence[Row], shares: Mapping[int, float]) -> list[str]:
    """Find a DMA controller that leaves too much of a folio to the CPU."""
    counts = {
        (row.engine, row.folio_bytes): row.instructions_per_folio
        for row in rows
        if row.pages in (None, "runs")
    }
    found = []
    for row in rows:
        count, alone = row.instructions_per_folio, counts.get(("off", row.folio_bytes))
        share = shares.get(row.folio_bytes)
        if row.engine != "dcbm" or row.pages not in (None, "runs") or not share:
            continue
        if count and alone and count > share * alone:
            found.append(
                f"dcbm takes {count / alone * 100:.1f}% of what the CPU takes at "
                f"{format_size(row.folio_bytes)}, {share * 100:g}% is allowed"
            )
    return found


def _costs_when_off(rows: Sequence[Row]) -> list[str]:
    """Find a cost of our kernel while everything is off.

    The limit then holds in both directions. A kernel that is cheaper than stock would
    differ in more than our changes.
    """
    found = []
    for row in rows:
        tolerance = OFF_TOLERANCE.get(row.folio_bytes)
        if tolerance is None or row.ratio_to_stock is None:
            continue
        change = row.ratio_to_stock - 1
        off = row.engine == "off" and row.pages in (None, "runs")
        if (off and change > tolerance) or (
            row.engine == "unbatched" and abs(change) > tolerance
        ):
            found.append(
                f"{row.engine} differs from stock by {change * 100:+.2f}% at "
                f"{_kind_of(row)}, {tolerance * 100:.1f}% is allowed"
            )
    return found


def _spares_too_little_in_runs(
    rows: Sequence[Row], bounds: Mapping[str, int]
) -> list[str]:
    """Find folios that cost more than their limit, in runs or alone."""
    found = []
    for row in rows:
        if row.engine != "off":
            continue
        most = bounds.get(row.pages or f"{row.folio_bytes // KIB}K")
        count, copy = row.instructions_per_folio, row.copy_instructions
        if row.pages and most is None and (row.ratio_to_stock or 0) > UNALIKE_SHARE:
            found.append(
                f"{_kind_of(row)} take {row.ratio_to_stock:.3f} of what they take "
                f"on stock, {UNALIKE_SHARE} is allowed"
            )
        if most is not None and count and copy and count - copy > most:
            found.append(
                f"{_kind_of(row)} take {count - copy:,} besides the copy, "
                f"{most:,} are allowed"
            )
    return found


def _kind_of(row: Row) -> str:
    size = format_size(row.folio_bytes)
    return size if row.pages in (None, "runs") else f"{size} {row.pages}"
