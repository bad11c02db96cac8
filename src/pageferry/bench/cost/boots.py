# SPDX-License-Identifier: GPL-2.0-only
"""Carries out `bench cost`: build, boot many times, and combine the results."""

from __future__ import annotations

import argparse
import time
from dataclasses import dataclass, replace
from pathlib import Path

from pageferry.bench import build, counted, disk
from pageferry.bench.cost import rows as cost
from pageferry.bench.plan import MODULES
from pageferry.bench.target import module_path
from pageferry.kernel.arch import ARM64, X86_64
from pageferry.kernel.build import (
    BuildRequest,
    BuiltKernel,
    build_kernel,
    describe,
    plan_build,
)
from pageferry.results import store
from pageferry.results.schema import Result

_TOPOLOGIES = {X86_64: "cost", ARM64: "versal-cost"}
# Demotion and promotion need tiers; the other paths use the same boot.
_TIERED = "tiered-cost"


@dataclass(frozen=True)
class Job:
    """The options of one run."""

    engines: tuple[str, ...]
    layouts: int
    kernel: BuildRequest
    vanilla: BuildRequest
    args: argparse.Namespace
    jobs: int
    sizes: tuple[int, ...] = cost.DEFAULT_SIZES
    pages: tuple[str, ...] = cost.DEFAULT_PAGES
    paths: tuple[str, ...] = cost.DEFAULT_PATHS

    @property
    def machines(self) -> dict[str, tuple[str, ...]]:
        """List the machines, and the measurements in each."""
        others = tuple(path for path in self.paths if path != cost.MOVE_PAGES)
        found: dict[str, tuple[str, ...]] = {}
        if cost.MOVE_PAGES in self.paths:
            found[_TOPOLOGIES[self.kernel.arch]] = cost.DEFAULT_PATHS
        return {**found, _TIERED: others} if others else found

    def request_for(self, engine: str) -> BuildRequest:
        """Choose the kernel: only the baseline is vanilla."""
        return self.vanilla if engine == "stock" else self.kernel

    def dry_run(self) -> list[str]:
        """Describe the steps of a run."""
        steps = ["build the programs in bench/"]
        for request in dict.fromkeys(map(self.request_for, self.engines)):
            steps += describe(plan_build(request))
        for machine in self.machines:
            for engine in self.engines:
                steps.append(
                    f"boot topology {machine} {self.layouts} times with engine {engine}"
                )
            steps.append(f"boot {self.engines[0]} once more and compare every digit")
        steps.append(f"keep the result in {store.results_dir()}")
        return steps

    def run(self) -> Result:
        """Count, verify, and return the result."""
        begin = time.monotonic_ns()
        program = build.build(self.kernel.arch) / "cost"
        kernels = {
            request: build_kernel(request)
            for request in dict.fromkeys(map(self.request_for, self.engines))
        }
        boots = _boots(self, kernels)
        machines = [boot.machine(program) for boot in boots]
        found = counted.run(machines, (cost.Cost,), self.jobs)
        seen = dict(zip(boots, found, strict=True))
        samples = {
            boot: cost.samples_of(boot.engine, lines) for boot, lines in seen.items()
        }
        for boot in boots:
            if boot.again:
                cost.check_same(samples[replace(boot, again=False)], samples[boot])
        once = [boot for boot in boots if not boot.again]
        rows = cost.make_rows([s for boot in once for s in samples[boot]])
        engines = [boot.engine for boot in boots]
        all_seen = list(zip(engines, machines, found, strict=True))
        return counted.result(
            begin, self.args, rows, all_seen, ", ".join(self.machines)
        )


@dataclass(frozen=True)
class Boot:
    """One boot of one engine's kernel with one memory layout."""

    engine: str
    layout: int
    kernel: BuiltKernel
    modules: tuple[Path, ...]
    topology: str
    sizes: tuple[int, ...]
    pages: tuple[str, ...]
    paths: tuple[str, ...]
    again: bool = False

    @property
    def name(self) -> str:
        """Return its name in files and messages."""
        again = "-again" if self.again else ""
        return f"{self.topology}-{self.engine}-{self.layout}{again}"

    def machine(self, program: Path) -> counted.Machine:
        """Return the machine to boot."""
        arguments = cost.init_arguments(
            *(self.engine, self.modules, self.layout),
            *(self.sizes, self.pages, self.paths),
        )
        files = cost.takes_disk(self.pages, self.paths)
        return counted.Machine(
            name=self.name,
            topology=self.topology,
            kernel=self.kernel,
            program=program,
            arguments=tuple(arguments),
            modules=self.modules,
            words=disk.WORDS if files else (),
            padding_bytes=self.layout * cost.PADDING_STEP_BYTES,
            disk=disk.ext4_image() if files else None,
        )


def _boots(job: Job, kernels: dict[BuildRequest, BuiltKernel]) -> list[Boot]:
    """List all boots. The last boot of each machine repeats its first."""
    boots: list[Boot] = []
    for machine, paths in job.machines.items():
        first = len(boots)
        for engine in job.engines:
            kernel = kernels[job.request_for(engine)]
            modules = (module_path(kernel, engine),) if engine in MODULES else ()
            boots += [
                Boot(engine, n, kernel, modules, machine, job.sizes, job.pages, paths)
                for n in range(job.layouts)
            ]
        boots.append(replace(boots[first], again=True))
    return boots
