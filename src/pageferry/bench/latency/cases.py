# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`: the cases of a run, as options of the program in bench/."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import ClassVar, Self

from pageferry.bench import writes
from pageferry.bench.options import MAX_CHANNELS, parse_list
from pageferry.bench.plan import BASE_S, Plan
from pageferry.errors import usage_error
from pageferry.units import PMD_BYTES, format_size

ENGINES = ("stock", "cpu", "mtcopy", "dcbm")
DEFAULT_ENGINES = ("stock", "mtcopy", "dcbm")
# The most pages that Linux moves in one batch.
STOCK_CAP_PAGES = 512
MAX_CAP_PAGES = 262144
MAX_WINDOWS = 16
MAX_LIMIT_US = 1_000_000_000
MAX_CASES = 256
# Near the rate of an emulated CPU's copy by 16 channels, and not above it.
DEFAULT_CHANNEL_MBPS = 64


@dataclass(frozen=True)
class Case:
    """One row of the table. The limits are for engines: stock has none."""

    engine: str = "stock"
    channels: int = 0
    threads: int = 0
    folio_bytes: int = PMD_BYTES
    total_bytes: int = 64 << 20
    cap_pages: int = STOCK_CAP_PAGES
    max_windows: int = 2
    streaming: bool = True
    # None: the default that the kernel measures.
    limit_us: int | None = None
    # The speed of each simulated channel. None: as the module was loaded.
    mbps: int | None = None
    # With simulated channels: the CPU also copies a share.
    share: bool = False
    touch: str = "none"
    # (percent of the move, factor)
    slow: tuple[int, int] | None = None
    role: str | None = None

    def variant(self) -> str:
        """Return the program's name of the engine."""
        if self.engine == "dcbm":
            return f"dcbm:channels={self.channels}"
        if self.engine == "mtcopy":
            return f"mtcopy:threads={self.threads}"
        return self.engine

    def posted(self, cap_pages: int) -> Case:
        """Make the engine behave as the posted design, with this cap."""
        return replace(
            self, cap_pages=cap_pages, max_windows=1, streaming=False, limit_us=0
        )

    def argument(self) -> str:
        """Return the case as an argument of the program."""
        words = [
            f"engine={self.variant()}",
            f"folio={self.folio_bytes}",
            f"total={self.total_bytes}",
        ]
        if self.engine != "stock":
            limit = "default" if self.limit_us is None else self.limit_us
            words += [
                f"cap={self.cap_pages}",
                f"windows={self.max_windows}",
                f"streaming={'true' if self.streaming else 'false'}",
                f"limit={limit}",
            ]
        if self.engine == "dcbm" and self.mbps is not None:
            words.append(f"mbps={self.mbps}")
            words.append(f"share={'true' if self.share else 'false'}")
        if self.touch != "none":
            words.append(f"touch={self.touch}")
        if self.slow is not None:
            words.append(f"slow={self.slow[0]}:{self.slow[1]}")
        return ",".join(words)


@dataclass(frozen=True, kw_only=True)
class LatencyPlan(Plan):
    """The plan of one run. Its engines, sizes and total follow from its cases."""

    program: ClassVar[str] = "latency"

    cases: tuple[Case, ...]
    sizes: tuple[int, ...] = field(init=False)
    engines: tuple[str, ...] = field(init=False)
    total_bytes: int = field(init=False)
    rounds: int = 5
    pause_us: int = 100
    # Two windows may be in flight when channels become slow. The kernel then needs four
    # late ones in a row to notice.
    skip_windows: int = 6
    # The cases depend on the rates of the machine.
    learns: bool = False

    def __post_init__(self) -> None:
        """List engines and sizes, each once, and find the largest move."""
        found = {
            "sizes": tuple(dict.fromkeys(case.folio_bytes for case in self.cases)),
            "engines": tuple(dict.fromkeys(case.engine for case in self.cases)),
            "total_bytes": max(case.total_bytes for case in self.cases),
        }
        for name, value in found.items():
            object.__setattr__(self, name, value)

    def simulated(self) -> dict[str, str]:
        """List the modules that simulate hardware, with their parameters."""
        dma = [case for case in self.cases if case.engine == "dcbm"]
        if not dma:
            return {}
        rates = [case.mbps for case in dma if case.mbps is not None]
        words = f"channels={max(case.channels for case in dma)}"
        return {"dmasim": f"{words} bandwidth_mbps={max(rates, default=0)}"}

    def on_real_channels(self) -> Self:
        """Return the plan for real channels, whose rate cannot be set."""
        cases = tuple(replace(case, mbps=None) for case in self.cases)
        return replace(self, cases=cases)

    def arguments(self) -> list[str]:
        """Return the options of bench/latency."""
        return [
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            f"--rounds={self.rounds}",
            f"--pause-us={self.pause_us}",
            f"--skip-windows={self.skip_windows}",
            *[f"--case={case.argument()}" for case in self.cases],
        ]

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        return len(self.cases) * (self.rounds + 1)

    def limit_s(self) -> float:
        """Return the time limit of a virtual machine."""
        total = 0.0
        for case in self.cases:
            rate = float(self.slowest_bytes_per_s)
            if case.engine == "dcbm" and case.mbps:
                slower = case.slow[1] if case.slow else 1
                rate = min(rate, case.channels * case.mbps * 1e6 / slower)
            total += 1 + case.total_bytes / rate
        return BASE_S + total * (self.rounds + 1)

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        return [
            "write /sys/kernel/mm/migrate_offload/max_unmapped_us",
            "write /sys/kernel/debug/migrate_offload/"
            "{max_batch_pages,max_windows,measure,streaming}",
            f"{writes.DMA_TIMEOUT}, where channels get slow",
            *(writes.FOLIO_SIZES, writes.OTHER_MIGRATION),
        ]

    def leaves(self, *, live: bool) -> list[str]:
        """List its other effects on this machine, or on a virtual one."""
        learning = ["all of it twice more before that, to learn its rates"]
        found = [writes.COMPACTED, writes.TRACING] if live else []
        return found + (learning if self.learns else [])


def parse_limits(text: str) -> tuple[int | None, ...]:
    """Parse a list of limits in microseconds, or `default`."""
    words = [word.strip() for word in text.split(",")]
    if len(set(words)) != len(words):
        raise usage_error("a limit is listed twice", text)
    return tuple(
        None if word == "default" else parse_list(word, "a limit", 0, MAX_LIMIT_US)[0]
        for word in words
    )


def parse_streaming(text: str) -> tuple[bool, ...]:
    """Parse true, false, or both."""
    words = [word.strip() for word in text.split(",")]
    if not set(words) <= {"true", "false"} or len(set(words)) != len(words):
        raise usage_error("not a value of --streaming", text, "true, false or both")
    return tuple(word == "true" for word in words)


@dataclass(frozen=True)
class Sweep:
    """Lists of settings: every combination is a case."""

    sizes: tuple[int, ...]
    totals: tuple[int, ...]
    engines: tuple[str, ...]
    channels: tuple[int, ...] = (16,)
    threads: tuple[int, ...] = (2,)
    mbps: int | None = DEFAULT_CHANNEL_MBPS
    caps: tuple[int, ...] = (STOCK_CAP_PAGES,)
    windows: tuple[int, ...] = (1, 2)
    streaming: tuple[bool, ...] = (True,)
    limits_us: tuple[int | None, ...] = (None,)
    touch: str = "none"
    slow: tuple[int, int] | None = None

    def _engines(self) -> list[Case]:
        found = []
        for engine in self.engines:
            if engine == "dcbm":
                found += [
                    Case(engine, channels=count, threads=1, mbps=self.mbps)
                    for count in self.channels
                ]
            elif engine == "mtcopy":
                found += [Case(engine, threads=count) for count in self.threads]
            else:
                found.append(Case(engine, threads=1))
        return found

    def _limits(self, case: Case) -> list[Case]:
        if case.engine == "stock":
            return [case]
        return [
            replace(
                case,
                cap_pages=cap,
                max_windows=windows,
                streaming=streaming,
                limit_us=limit,
                slow=self.slow if case.engine == "dcbm" else None,
            )
            for cap in self.caps
            for windows in self.windows
            for streaming in self.streaming
            for limit in self.limits_us
        ]

    def cases(self) -> tuple[Case, ...]:
        """List all cases."""
        return tuple(
            replace(limited, folio_bytes=size, total_bytes=total, touch=self.touch)
            for size in self.sizes
            for total in self.totals
            for engine in self._engines()
            for limited in self._limits(engine)
        )


def check_cases(cases: Sequence[Case]) -> tuple[Case, ...]:
    """Reject cases that the program cannot measure."""
    if not 1 <= len(cases) <= MAX_CASES:
        raise usage_error(
            "too many combinations", str(len(cases)), f"at most {MAX_CASES}: list fewer"
        )
    for case in cases:
        if case.total_bytes % case.folio_bytes or not case.total_bytes:
            raise usage_error(
                "total is no whole number of folios",
                f"{format_size(case.total_bytes)} in {format_size(case.folio_bytes)}",
            )
        if not 0 <= case.channels <= MAX_CHANNELS:
            raise usage_error("not a number of channels", str(case.channels))
    return tuple(cases)
