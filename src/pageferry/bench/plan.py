# SPDX-License-Identifier: GPL-2.0-only
"""The plan of one run: the options of its program, and its time limit."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Self

from pageferry.bench import writes

# The engines in kernel modules, which have the same names.
MODULES = ("mtcopy", "dcbm")
BASE_S = 300.0


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan in which engines take turns."""

    # The program in bench/.
    program: ClassVar[str]

    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    total_bytes: int
    rounds: int
    threads: tuple[int, ...] = (2,)
    channels: tuple[int, ...] = (1,)
    channel_mbps: int = 0
    from_node: int = 0
    to_node: int = 1
    # The limit on unmapped time; 0: no limit. None: the present limit.
    max_unmapped_us: int | None = None

    # A hanging run must end, and a slow one must not. Emulation on a busy host moves at
    # least this much.
    slowest_bytes_per_s: ClassVar[int] = 4_000_000
    # The time that a measurement needs besides moving.
    measurement_s: ClassVar[float] = 0.0

    def variants(self) -> list[str]:
        """Return the columns for the program, the baseline always first."""
        names = ["stock"]
        for engine in self.engines:
            if engine == "mtcopy":
                names += [f"mtcopy:threads={count}" for count in self.threads]
            elif engine == "dcbm":
                names += [f"dcbm:channels={count}" for count in self.channels]
            elif engine != "stock":
                names.append(engine)
        return names

    def modules(self) -> list[str]:
        """List the kernel modules of the engines."""
        return [name for name in self.engines if name in MODULES]

    def simulated(self) -> dict[str, str]:
        """List the modules that simulate hardware, with their parameters."""
        if "dcbm" not in self.engines:
            return {}
        parameters = f"channels={max(self.channels)}"
        return {"dmasim": f"{parameters} bandwidth_mbps={self.channel_mbps}"}

    def words(self) -> list[str]:
        """Return the kernel command line words of a virtual machine."""
        return []

    def moving_words(self) -> list[str]:
        """Return the options of a program that moves memory between two nodes."""
        return [
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            "--sizes=" + ",".join(map(str, self.sizes)),
            f"--total-bytes={self.total_bytes}",
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
        ]

    def limit_words(self) -> list[str]:
        """Return the option for the limit on unmapped time."""
        if self.max_unmapped_us is None:
            return []
        return [f"--max-unmapped-us={self.max_unmapped_us}"]

    def arguments(self) -> list[str]:
        """Return the options of the program."""
        return [*self.moving_words(), *self.limit_words()]

    def kinds(self) -> int:
        """Count the measurements of each variant in a round."""
        return len(self.sizes)

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        return len(self.variants()) * self.kinds() * (self.rounds + 1)

    @property
    def each_bytes(self) -> int:
        """Return the largest amount that a measurement moves."""
        return self.total_bytes

    def limit_s(self) -> float:
        """Return the time limit of a virtual machine for each boot."""
        each = self.each_bytes / self.slowest_bytes_per_s + self.measurement_s
        return BASE_S + self.measurements() * each

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        limit = writes.of_limit(self.max_unmapped_us)
        return [writes.FOLIO_SIZES, writes.OTHER_MIGRATION, *limit]

    def leaves(self, *, live: bool) -> list[str]:
        """List its other effects on this machine, or on a virtual one."""
        return [writes.COMPACTED] if live else []

    def on_real_channels(self) -> Self:
        """Return the plan for real channels, whose rate cannot be set."""
        return self
