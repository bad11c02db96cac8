# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction`: the plan, and rows from what the program measured."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from statistics import fmean, median

from pageferry.bench.lines import Compaction, Line
from pageferry.bench.move_pages import BASE_BYTES, MODULES, PMD_BYTES, limit_words
from pageferry.errors import PageferryError, usage_error
from pageferry.results.schema import RatioSpread, Row, Spread
from pageferry.results.stats import round_ratios, spread
from pageferry.units import format_size, parse_size

BENCH = "compaction"
ENGINES = ("stock", "off", "cpu", "mtcopy", "dcbm")
STATES = ("idle", "busy")
MODULE = "migrate_compact_test"
METHOD = "allocation of 2 MiB"
# Of a simulated channel: more than dcbm ever has in flight, as devices have.
DESCRIPTORS = 512
# By which a completion may be late, so that several have one timer and one interrupt.
# With one for each page the CPU that is looked at took longer, too.
COALESCE_US = 100


@dataclass(frozen=True)
class CompactionPlan:
    """What one run measures."""

    engines: tuple[str, ...]
    states: tuple[str, ...]
    threads: int
    channels: int
    channel_mbps: int
    # 0: as much as the node lets us, which the program decides.
    total_bytes: int
    count: int
    rounds: int
    node: int
    cpu: int | None = None
    # Of what stock migrates; with it channel_mbps only holds until that is known.
    channel_percent: int = 0
    # None: as it is.
    max_unmapped_us: int | None = None

    @property
    def from_node(self) -> int:
        """Where memory is."""
        return self.node

    @property
    def to_node(self) -> int:
        """Where it goes: nowhere else."""
        return self.node

    @property
    def sizes(self) -> tuple[int, ...]:
        """What is allocated: huge pages."""
        return (PMD_BYTES,)

    def variants(self) -> list[str]:
        """Name the columns for the program, the baseline always first."""
        names = ["stock"]
        for engine in self.engines:
            if engine == "mtcopy":
                names.append(f"mtcopy:threads={self.threads}")
            elif engine == "dcbm":
                names.append(f"dcbm:channels={self.channels}")
            elif engine != "stock":
                names.append(engine)
        return names

    def modules(self) -> list[str]:
        """List the kernel modules of the engines, and what allocates."""
        return [*(MODULES[name] for name in self.engines if name in MODULES), MODULE]

    def simulated(self) -> dict[str, str]:
        """List the modules that stand in for hardware, with their parameters."""
        if "dcbm" not in self.engines:
            return {}
        rate = f"bandwidth_mbps={self.channel_mbps}"
        # A device has a CPU of its own, as what it does is no work of the one looked at.
        other = 0 if self.cpu else 1
        words = f"channels={self.channels} descriptors={DESCRIPTORS} {rate} cpu={other}"
        return {"dmasim": f"{words} coalesce_us={COALESCE_US}"}

    def arguments(self) -> list[str]:
        """Give the options of bench/compaction."""
        words = [
            f"--node={self.node}",
            f"--total-bytes={self.total_bytes}",
            f"--count={self.count}",
            "--states=" + ",".join(self.states),
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
            *limit_words(self.max_unmapped_us),
        ]
        if self.cpu is not None:
            words.append(f"--cpu={self.cpu}")
        if self.channel_percent and "dcbm" in self.engines:
            words.append(f"--channel-percent={self.channel_percent}")
        return words

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        return len(self.variants()) * len(self.states) * (self.rounds + 1)


def parse_states(text: str) -> tuple[str, ...]:
    """Read whether that CPU has something else to do."""
    states = tuple(word.strip() for word in text.split(","))
    for name in states:
        if name not in STATES:
            raise usage_error("unknown state", name, "known: " + ", ".join(STATES))
    if len(set(states)) != len(states):
        raise usage_error("a state is listed twice", text)
    return states


def parse_total(text: str) -> int:
    """Read how much memory is mapped; auto is 0."""
    total = 0 if text == "auto" else parse_size(text)
    if total % PMD_BYTES or (not total and text != "auto"):
        raise usage_error(
            "total is not a multiple of 2M", text, "auto: half of what is free"
        )
    return total


def samples_of(lines: Sequence[Line]) -> list[Compaction]:
    """Pick out what counts: the warm-up round does not."""
    found = [line for line in lines if isinstance(line, Compaction)]
    if any(not sample.verified for sample in found):
        raise PageferryError("a measurement was not verified")
    counted = [sample for sample in found if sample.round > 0]
    for sample in counted:
        if sample.wall_ns <= 0 or sample.allocated <= 0:
            raise PageferryError(
                "nothing was allocated, or the clock stood still",
                value=f"{sample.engine}, round {sample.round}",
            )
    return counted


Key = tuple[bool, str, int, int]


def _key(sample: Compaction) -> Key:
    return (sample.busy, sample.engine, sample.threads, sample.channels)


def _of_cpu(sample: Compaction, part_ns: int) -> float:
    """Divide by all that was accounted for, as ticks and clock differ a bit."""
    known = sample.user_ns + sample.system_ns + sample.idle_ns + sample.steal_ns
    return part_ns / known if known else 0.0


def _system(sample: Compaction) -> float:
    return _of_cpu(sample, sample.system_ns)


def _part(samples: Sequence[Compaction], figure: Callable[[Compaction], int]) -> float:
    """Take all rounds together, as one has few ticks."""
    known = sum(s.user_ns + s.system_ns + s.idle_ns + s.steal_ns for s in samples)
    return sum(figure(sample) for sample in samples) / known if known else 0.0


def _channel_mbps(samples: Sequence[Compaction]) -> int | None:
    known = [s.channel_mbps for s in samples if s.channel_mbps is not None]
    return round(median(known)) if known else None


def _ratio(
    mine: Sequence[Compaction],
    stock: Sequence[Compaction],
    figure: Callable[[Compaction], float],
) -> RatioSpread | None:
    base = {sample.round: figure(sample) for sample in stock if figure(sample) > 0}
    return round_ratios({sample.round: figure(sample) for sample in mine}, base)


def _hog_until(
    mine: Sequence[Compaction], stock: Sequence[Compaction]
) -> RatioSpread | None:
    """Compare what hogs did until stock was done with its huge pages, in each round.

    One whose engine was sooner has the CPU to itself for the rest of that time.
    """
    walls = {sample.round: sample.wall_ns for sample in stock}

    def done(sample: Compaction) -> float:
        left_ns = walls.get(sample.round, sample.wall_ns) - sample.wall_ns
        if left_ns > 0 and sample.alone_ns:
            alone = sample.alone_iterations / sample.alone_ns
            return sample.hog_iterations + left_ns * alone
        return sample.hog_iterations * (1 + left_ns / sample.wall_ns)

    known = [sample for sample in mine if sample.alone_ns]
    return _ratio(known, stock, done) if known else None


def _spread(values: Sequence[int | None]) -> Spread | None:
    known = [value for value in values if value is not None]
    return spread(known) if known and len(known) == len(values) else None


def _total(values: Sequence[int | None]) -> int | None:
    """Add up what is known; unknown anywhere is unknown altogether."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def make_rows(lines: Sequence[Line]) -> list[Row]:
    """Turn measurements into rows."""
    samples = samples_of(lines)
    keys = dict.fromkeys(_key(sample) for sample in samples)
    rows = []
    for key in keys:
        mine = [sample for sample in samples if _key(sample) == key]
        stock = [s for s in samples if _key(s) == (key[0], "stock", 1, 0)]
        rows.append(_row(key, mine, stock))
    return sorted(rows, key=_order)


def _row(key: Key, mine: Sequence[Compaction], stock: Sequence[Compaction]) -> Row:
    busy, engine, threads, channels = key
    moved = [(s.pgmigrate_success or 0) * BASE_BYTES for s in mine]
    speed = _ratio(mine, stock, lambda s: s.allocated / s.wall_ns)
    without = engine in ("stock", "off")
    engine_bytes = None if without else _total([s.engine_bytes for s in mine])
    cpu_bytes = None if without else _total([s.cpu_bytes for s in mine])
    return Row(
        bench=BENCH,
        engine=engine,
        channels=channels,
        channel_mbps=_channel_mbps(mine),
        threads=threads,
        folio_bytes=BASE_BYTES,
        moved_bytes=round(fmean(moved)),
        rounds=len(mine),
        verified=True,
        busy=busy,
        method=METHOD,
        asked_pages=mine[0].asked,
        allocated_pages=spread([s.allocated for s in mine]),
        wall_ns=spread([s.wall_ns for s in mine]),
        wall_ratio_to_stock=_ratio(mine, stock, lambda s: s.wall_ns / s.allocated),
        thread_ns=spread([s.thread_ns for s in mine]),
        thread_ratio_to_stock=_ratio(mine, stock, lambda s: s.thread_ns / s.allocated),
        thread_share_to_stock=_ratio(mine, stock, lambda s: s.thread_ns / s.wall_ns),
        user_share=_part(mine, lambda s: s.user_ns),
        system_share=_part(mine, lambda s: s.system_ns),
        idle_share=_part(mine, lambda s: s.idle_ns),
        system_share_to_stock=_ratio(mine, stock, _system),
        migrated_pages=_spread([s.pgmigrate_success for s in mine]),
        scanned_pages=_spread([s.compact_migrate_scanned for s in mine]),
        hog_iterations=spread([s.hog_iterations for s in mine]) if busy else None,
        hog_ratio_to_stock=_ratio(mine, stock, lambda s: s.hog_iterations / s.wall_ns)
        if busy
        else None,
        hog_until_stock_is_done=_hog_until(mine, stock),
        engine_bytes=engine_bytes,
        cpu_bytes=cpu_bytes,
        share_offloaded=_share(engine_bytes, sum(moved)),
        folios_per_batch=_per_batch(mine),
        bytes_per_s=spread(
            [n * 1e9 / s.wall_ns for n, s in zip(moved, mine, strict=True)]
        ),
        ratio_to_stock=None if speed is None else speed.median,
        ratio_to_stock_spread=speed,
    )


def _share(engine_bytes: int | None, moved: int) -> float | None:
    if engine_bytes is None or not moved:
        return None
    # Copied, but moved later or not at all: more than what moved.
    return min(engine_bytes / moved, 1.0)


def _per_batch(mine: Sequence[Compaction]) -> float | None:
    offered = _total([sample.offered_folios for sample in mine])
    batches = _total([sample.batches for sample in mine])
    return offered / batches if offered and batches else None


def _order(row: Row) -> tuple[bool, int, int, int]:
    """Idle first, and the baseline before all others."""
    rank = ENGINES.index(row.engine) if row.engine in ENGINES else len(ENGINES)
    return (row.busy, rank, row.threads, row.channels)


def describe_size(plan: CompactionPlan) -> str:
    """Say how much is mapped, before anybody knows what is free."""
    return format_size(plan.total_bytes) if plan.total_bytes else "half of what is free"
