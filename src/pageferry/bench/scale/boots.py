# SPDX-License-Identifier: GPL-2.0-only
"""Carries out `bench scale`: build, boot each engine once, and make rows."""

from __future__ import annotations

import argparse
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pageferry.bench import build, counted
from pageferry.bench.scale import rows as scale
from pageferry.bench.target import module_path
from pageferry.kernel.build import (
    BuildRequest,
    BuiltKernel,
    build_kernel,
    describe,
    plan_build,
)
from pageferry.results import store
from pageferry.results.schema import Result
from pageferry.units import BASE_BYTES, GIB, MIB
from pageferry.vm import topology

# CPUs that take turns may wait for longer than RCU expects.
_WORDS = ("rcupdate.rcu_cpu_stall_timeout=120",)
# For the limit of time: an emulated page, round and second of all CPUs, and how many
# instructions a busy host emulates in a second.
_PAGE_INSTRUCTIONS = 10_000
_ROUND_INSTRUCTIONS = 20_000_000
_IDLE_INSTRUCTIONS = 10_000_000
_SLOWEST_PER_S = 20_000_000


@dataclass(frozen=True)
class Work:
    """The measurements of each boot."""

    parts: tuple[str, ...] = scale.PARTS
    # Both from the smallest on.
    sizes: tuple[int, ...] = (64 * MIB, 256 * MIB, GIB, 4 * GIB, 16 * GIB)
    movers: tuple[int, ...] = (1, 2, 4, 8, 16, 32, 64)
    # All movers together move these pages, and repeat that.
    mover_pages: int = 65536
    repeats: int = 3
    # Before that, the kernel learns whether the engine pays, and forgets earlier load.
    learn_ms: int = 12_000
    # The long life has so many moves, and a pause after each.
    rounds: int = 3600
    pause_ms: int = 1000

    def arguments(self) -> list[str]:
        """Return the options of bench/scale."""
        words = ["--parts", ",".join(self.parts)]
        if "sizes" in self.parts:
            words += ["--sizes", ",".join(map(str, self.sizes))]
        if "movers" in self.parts:
            words += ["--movers", ",".join(map(str, self.movers))]
            words += ["--mover-pages", str(self.mover_pages)]
            words += ["--learn-ms", str(self.learn_ms), "--repeats", str(self.repeats)]
        if "life" in self.parts:
            words += ["--rounds", str(self.rounds), "--pause-ms", str(self.pause_ms)]
        return words

    @property
    def memory_bytes(self) -> int:
        """Return how much of the host's memory each machine may touch, about."""
        return 2 * max(self.sizes if "sizes" in self.parts else (0,)) + GIB

    @property
    def limit_s(self) -> float:
        """Return the time limit of a boot."""
        pages = rounds = instructions = 0
        if "sizes" in self.parts:
            # Each list moves there and back, in one call and in many.
            pages += 4 * (sum(self.sizes) + self.sizes[0]) // BASE_BYTES
        if "movers" in self.parts:
            pages += 2 * (len(self.movers) * self.repeats + 1) * self.mover_pages
            instructions += 2 * self.learn_ms * 1_000_000
        if "life" in self.parts:
            rounds = self.rounds
        idle_s = rounds * self.pause_ms / 1000
        instructions += pages * _PAGE_INSTRUCTIONS + rounds * _ROUND_INSTRUCTIONS
        instructions += round(idle_s * _IDLE_INSTRUCTIONS)
        return 600 + instructions / _SLOWEST_PER_S


# Seconds for each engine.
QUICK = Work(
    sizes=(16 * MIB, 64 * MIB),
    movers=(1, 8),
    mover_pages=16384,
    learn_ms=0,
    repeats=1,
    rounds=200,
    pause_ms=20,
)


@dataclass(frozen=True)
class Job:
    """The options of one run."""

    engines: tuple[str, ...]
    work: Work
    topology: str
    kernel: BuildRequest
    args: argparse.Namespace
    jobs: int

    def request_for(self, engine: str) -> BuildRequest:
        """Choose the kernel: only the baseline is vanilla."""
        return replace(self.kernel, vanilla=engine == "stock")

    def dry_run(self) -> list[str]:
        """Describe the steps of a run."""
        steps = ["build the programs in bench/"]
        for request in dict.fromkeys(map(self.request_for, self.engines)):
            steps += describe(plan_build(request))
        steps += [
            f"boot topology {self.topology} with engine {engine}"
            for engine in self.engines
        ]
        steps.append("in each: " + " ".join(["scale", *self.work.arguments()]))
        return [*steps, f"keep the result in {store.results_dir()}"]

    def run(self) -> Result:
        """Count, verify, and return the result."""
        begin = time.monotonic_ns()
        program = build.build(self.kernel.arch) / "scale"
        kernels = {
            request: build_kernel(request)
            for request in dict.fromkeys(map(self.request_for, self.engines))
        }
        machines = [
            self.machine(engine, kernels[self.request_for(engine)], program)
            for engine in self.engines
        ]
        found = counted.run(machines, scale.LINES, self.jobs)
        seen = list(zip(self.engines, machines, found, strict=True))
        samples = [
            sample
            for engine, _, lines in seen
            for sample in scale.samples_of(engine, lines)
        ]
        rows = scale.make_rows(samples)
        return counted.result(begin, self.args, rows, seen, self.topology)

    def machine(
        self, engine: str, kernel: BuiltKernel, program: Path
    ) -> counted.Machine:
        """Return the machine of an engine."""
        modules = [module_path(kernel, name) for name in self.modules(engine)]
        variant = engine
        if engine == "dcbm":
            variant = f"dcbm:channels={scale.DMA_CHANNELS}"
        words = ["--engine", variant]
        for module in modules:
            name = f"/{module.name}"
            if module.stem == "dmasim":
                # A machine whose clock counts instructions has timers of 4 ms. With a
                # thread and no rate, copies need no timer.
                name = f'"{name} cpu={topology.load(self.topology).cpus - 1}"'
            words += ["--module", name]
        return counted.Machine(
            name=f"scale-{engine}",
            topology=self.topology,
            kernel=kernel,
            program=program,
            arguments=(*words, *self.work.arguments()),
            modules=tuple(modules),
            words=_WORDS,
            limit_s=self.work.limit_s,
        )

    def modules(self, engine: str) -> Sequence[str]:
        """List the modules of an engine, in the order of their loading."""
        if engine == "dcbm" and not topology.load(self.topology).dma_channels:
            return ("dmasim", "dcbm")
        return (engine,) if engine in ("mtcopy", "dcbm") else ()
