# SPDX-License-Identifier: GPL-2.0-only
"""The plan of one run: the options of its program, and how long that may take."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Protocol, Self

from pageferry.bench import writes

# Kernel modules of engines.
MODULES = {"mtcopy": "mtcopy", "dcbm": "dcbm"}
BASE_S = 300.0


class Measures(Protocol):
    """A plan as the rest needs it: where memory goes, by whom, and in which sizes."""

    @property
    def program(self) -> str: ...
    @property
    def from_node(self) -> int: ...
    @property
    def to_node(self) -> int: ...
    @property
    def engines(self) -> tuple[str, ...]: ...
    @property
    def sizes(self) -> tuple[int, ...]: ...
    @property
    def total_bytes(self) -> int: ...
    @property
    def rounds(self) -> int: ...

    # Plan says what these do. arguments() are those of the program; writes() lists the
    # settings that it writes and puts back.
    def arguments(self) -> list[str]: ...
    def writes(self) -> list[str]: ...
    def modules(self) -> list[str]: ...
    def simulated(self) -> dict[str, str]: ...
    def words(self) -> list[str]: ...
    def measurements(self) -> int: ...
    def limit_s(self) -> float: ...
    def leaves(self, *, live: bool) -> list[str]: ...
    def on_real_channels(self) -> Self: ...


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A plan in which engines take turns."""

    sizes: tuple[int, ...]
    engines: tuple[str, ...]
    total_bytes: int
    rounds: int
    threads: tuple[int, ...] = (2,)
    channels: tuple[int, ...] = (1,)
    channel_mbps: int = 0
    from_node: int = 0
    to_node: int = 1
    # How long a folio may be out of reach; 0: without bounds. None: as it is.
    max_unmapped_us: int | None = None

    # A run that hangs must end; one that is merely slow must not. Emulation on a
    # busy host moves no less than this.
    slowest_bytes_per_s: ClassVar[int] = 4_000_000
    # The time that a measurement needs besides moving.
    measurement_s: ClassVar[float] = 0.0

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
        """Give what a virtual machine has to be told when it boots."""
        return []

    def moving_words(self) -> list[str]:
        """Give the options of a program that moves memory between two nodes."""
        return [
            f"--from={self.from_node}",
            f"--to={self.to_node}",
            "--sizes=" + ",".join(map(str, self.sizes)),
            f"--total-bytes={self.total_bytes}",
            f"--rounds={self.rounds}",
            "--variants=" + ",".join(self.variants()),
        ]

    def limit_words(self) -> list[str]:
        """Give the option for how long folios are out of reach."""
        if self.max_unmapped_us is None:
            return []
        return [f"--max-unmapped-us={self.max_unmapped_us}"]

    def arguments(self) -> list[str]:
        """Give the options of the program."""
        return [*self.moving_words(), *self.limit_words()]

    def kinds(self) -> int:
        """Count what each variant does in a round."""
        return len(self.sizes)

    def measurements(self) -> int:
        """Count the lines that the program will print, for the progress bar."""
        return len(self.variants()) * self.kinds() * (self.rounds + 1)

    @property
    def each_bytes(self) -> int:
        """Give what a measurement moves at most."""
        return self.total_bytes

    def limit_s(self) -> float:
        """Give the time after which a virtual machine is given up, at each boot."""
        each = self.each_bytes / self.slowest_bytes_per_s + self.measurement_s
        return BASE_S + self.measurements() * each

    def writes(self) -> list[str]:
        """Say what the program writes and puts back."""
        limit = writes.of_limit(self.max_unmapped_us)
        return [writes.FOLIO_SIZES, writes.OTHER_MIGRATION, *limit]

    def leaves(self, *, live: bool) -> list[str]:
        """Say what else it does to this machine, or to a virtual one."""
        return [writes.COMPACTED] if live else []

    def on_real_channels(self) -> Self:
        """Give the plan for channels whose rate nobody can set."""
        return self
