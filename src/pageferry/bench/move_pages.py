# SPDX-License-Identifier: GPL-2.0-only
"""`bench move-pages` and `hugetlb`: the plan, and rows from what was measured."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from pageferry.bench.lines import Measurement
from pageferry.errors import PageferryError, usage_error
from pageferry.results.schema import Row
from pageferry.results.stats import round_ratios, spread
from pageferry.units import GIB, KIB, MIB, format_size, parse_size

BENCH = "move-pages"
HUGETLB = "hugetlb"
LIMIT = "limit"
PMD_BYTES = 2 * MIB
BASE_BYTES = 4 * KIB
HUGETLB_MAX_BYTES = 1 * GIB
DEFAULT_SIZES = "4K,64K,2M"
DEFAULT_TOTAL_BYTES = 256 * MIB
DEFAULT_ENGINES = ("stock", "cpu", "mtcopy")
# "off": no engine, but pages that are unmapped and mapped many at a time.
ENGINES = (*DEFAULT_ENGINES, "off", "dcbm")
MODULES = {"mtcopy": "mtcopy", "dcbm": "dcbm"}
MAX_THREADS = 32
MAX_CHANNELS = 64
# Far below what even an emulated CPU copies, so that the simulated engine is
# what limits the rate.
DEFAULT_CHANNEL_MBPS = 10


@dataclass(frozen=True)
class Plan:
    """What one run measures."""

    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    threads: tuple[int, ...]
    total_bytes: int
    rounds: int
    busy: Literal["no", "only", "both"] = "no"
    from_node: int = 0
    to_node: int = 1
    with_limit: bool = True
    channels: tuple[int, ...] = (1,)
    channel_mbps: int = DEFAULT_CHANNEL_MBPS
    bench: Literal["move-pages", "hugetlb"] = "move-pages"
    # How long a folio may be out of reach; 0: without bounds. None: as it is.
    max_unmapped_us: int | None = None

    def variants(self) -> list[str]:
        """Name the columns for the program, the baseline always first."""
        names = ["stock"]
        for engine in self.engines:
            if engine == "mtcopy":
                names += [f"mtcopy:threads={count}" for count in self.threads]
            elif engine == "dcbm":
                names += [f"dcbm:channels={count}" for count in self.channels]
            elif engine != "stock":
                names.append(engine)
        return names

    def limits(self) -> list[int]:
        """Count the CPUs that memcpy gets: as many as each variant."""
        if not self.with_limit:
            return []
        threads = self.threads if "mtcopy" in self.engines else ()
        return sorted({1, *threads})

    def modules(self) -> list[str]:
        """List the kernel modules that the engines live in."""
        return [MODULES[name] for name in self.engines if name in MODULES]

    def simulated(self) -> dict[str, str]:
        """List the modules that stand in for hardware, with their parameters."""
        if "dcbm" not in self.engines:
            return {}
        parameters = f"channels={max(self.channels)}"
        return {"dmasim": f"{parameters} bandwidth_mbps={self.channel_mbps}"}

    def words(self) -> list[str]:
        """Give what a virtual machine has to reserve when it boots: what is large."""
        large = [size for size in self.sizes if size > PMD_BYTES]
        words = []
        for size in large:
            pages = self.total_bytes // size
            nodes = f"{self.from_node}:{pages},{self.to_node}:{pages}"
            words += [f"hugepagesz={size // MIB}M", f"hugepages={nodes}"]
        return words

    def arguments(self) -> list[str]:
        """Give the options of bench/move_pages."""
        hugetlb = ["--hugetlb"] if self.bench == HUGETLB else []
        return [
            *hugetlb,
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            "--sizes=" + ",".join(str(size) for size in self.sizes),
            f"--total-bytes={self.total_bytes}",
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
            "--limit=" + (",".join(map(str, self.limits())) or "none"),
            f"--busy={self.busy}",
            *limit_words(self.max_unmapped_us),
        ]

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        columns = len(self.variants()) + len(self.limits())
        states = 2 if self.busy == "both" else 1
        return columns * states * len(self.sizes) * (self.rounds + 1)


def limit_words(max_unmapped_us: int | None) -> list[str]:
    """Give the option of a program of bench/ for how long folios are out of reach."""
    if max_unmapped_us is None:
        return []
    return [f"--max-unmapped-us={max_unmapped_us}"]


def parse_sizes(text: str) -> tuple[int, ...]:
    """Read a list of folio sizes: 4K,64K,2M, or all."""
    if text == "all":
        return tuple(BASE_BYTES << order for order in range(10) if order != 1)
    sizes = []
    for word in text.split(","):
        size = parse_size(word)
        if not BASE_BYTES <= size <= PMD_BYTES or size & (size - 1):
            raise usage_error(
                "not a folio size", word, "a power of two from 4K to 2M, or all"
            )
        sizes.append(size)
    if len(set(sizes)) != len(sizes):
        raise usage_error("a folio size is listed twice", text)
    return tuple(sizes)


def parse_hugetlb_sizes(text: str) -> tuple[int, ...]:
    """Read a list of sizes that hugetlb may have; which it has, the kernel says."""
    sizes = []
    for word in text.split(","):
        size = parse_size(word)
        if not 16 * BASE_BYTES <= size <= HUGETLB_MAX_BYTES or size & (size - 1):
            raise usage_error(
                "not a size of huge pages", word, "x86 has 2M and 1G: 2M,1G"
            )
        sizes.append(size)
    if len(set(sizes)) != len(sizes):
        raise usage_error("a size is listed twice", text)
    return tuple(sizes)


def parse_engines(text: str, known: Sequence[str] = ENGINES) -> tuple[str, ...]:
    """Read a list of engine names."""
    engines = tuple(word.strip() for word in text.split(","))
    for name in engines:
        if name not in known:
            raise usage_error("unknown engine", name, "known: " + ", ".join(known))
    if len(set(engines)) != len(engines):
        raise usage_error("an engine is listed twice", text)
    return engines


def _parse_counts(text: str, what: str, most: int) -> tuple[int, ...]:
    counts = []
    for word in text.split(","):
        digits = word.strip()
        if not (digits.isascii() and digits.isdigit()):
            raise usage_error(f"not a number of {what}", word)
        counts.append(int(digits))
        if not 1 <= counts[-1] <= most:
            raise usage_error(f"not a number of {what}", word, f"from 1 to {most}")
    if len(set(counts)) != len(counts):
        raise usage_error(f"a number of {what} is listed twice", text)
    return tuple(counts)


def parse_threads(text: str) -> tuple[int, ...]:
    """Read a list of thread counts for mtcopy, the caller included."""
    return _parse_counts(text, "threads", MAX_THREADS)


def parse_channels(text: str) -> tuple[int, ...]:
    """Read a list of numbers of DMA channels."""
    return _parse_counts(text, "DMA channels", MAX_CHANNELS)


def parse_total(text: str, largest: int = PMD_BYTES) -> int:
    """Read the total that each call moves, which is of folios of up to `largest`."""
    total = parse_size(text)
    largest = max(largest, PMD_BYTES)
    if not total or total % largest:
        raise usage_error(
            f"total is not a multiple of {largest // MIB}M",
            text,
            "every folio size has to divide it: "
            + ("64M, 256M" if largest == PMD_BYTES else f"{largest // MIB}M"),
        )
    return total


Key = tuple[int, bool, str, int, int]


def rates(samples: Sequence[Measurement]) -> dict[Key, dict[int, float]]:
    """Sort bytes per second by folio size, load, engine, its size and round."""
    found: dict[Key, dict[int, float]] = {}
    for sample in samples:
        if sample.elapsed_ns <= 0:
            raise PageferryError(
                "the clock stood still during a move",
                value=f"{sample.engine}, {format_size(sample.folio_bytes)}",
            )
        key = _key(sample)
        rate = sample.moved_bytes * 1e9 / sample.elapsed_ns
        found.setdefault(key, {})[sample.round] = rate
    return found


def _total(values: Sequence[int | None]) -> int | None:
    """Add up what is known; unknown anywhere is unknown altogether."""
    known = [value for value in values if value is not None]
    return sum(known) if known and len(known) == len(values) else None


def make_rows(measurements: Sequence[Measurement], bench: str = BENCH) -> list[Row]:
    """Turn measurements into rows. The warm-up round does not count."""
    samples = [sample for sample in measurements if sample.round > 0]
    if any(not sample.verified for sample in samples):
        raise PageferryError("a measurement was not verified")
    by_key = rates(samples)
    rows = []
    for key, series in by_key.items():
        size, busy, engine, threads, channels = key
        mine = [s for s in samples if _key(s) == key]
        limits = [k[3] for k in by_key if k[:3] == (size, busy, LIMIT)]
        # An engine that chooses its threads is held against the most.
        of_limit = threads if threads in limits else max(limits, default=0)
        ratio = round_ratios(series, by_key.get((size, busy, "stock", 1, 0), {}))
        limit = by_key.get((size, busy, LIMIT, of_limit, 0), {})
        share = round_ratios(series, limit)
        rows.append(
            Row(
                bench=bench,
                engine=engine,
                channels=channels,
                threads=threads,
                folio_bytes=size,
                moved_bytes=mine[0].moved_bytes,
                rounds=len(series),
                verified=True,
                busy=busy,
                split_folios=_total([s.split_folios for s in mine]),
                engine_bytes=_total([s.engine_bytes for s in mine]),
                bytes_per_s=spread(list(series.values())),
                ratio_to_stock=None
                if engine == LIMIT or ratio is None
                else ratio.median,
                ratio_to_stock_spread=None if engine == LIMIT else ratio,
                share_of_limit=None
                if engine == LIMIT or share is None
                else share.median,
                limit_threads=None if engine == LIMIT or not limits else of_limit,
            )
        )
    return sorted(rows, key=_order)


def _key(sample: Measurement) -> Key:
    return (
        sample.folio_bytes,
        sample.busy,
        sample.engine,
        sample.threads,
        sample.channels,
    )


def _order(row: Row) -> tuple[int, bool, int, int, int]:
    """Sort by size, idle first, and the baseline before the limit."""
    ranks = [*ENGINES, LIMIT]
    rank = ranks.index(row.engine) if row.engine in ranks else len(ENGINES)
    return (row.folio_bytes, row.busy, rank, row.threads, row.channels)


def moved_pages(rows: Sequence[Row]) -> int:
    """Count the pages of 4 KiB that were moved and verified."""
    return sum(
        row.moved_bytes // BASE_BYTES * row.rounds
        for row in rows
        if row.engine != LIMIT and row.verified
    )
