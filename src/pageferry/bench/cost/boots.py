# SPDX-License-Identifier: GPL-2.0-only
"""Carries out `bench cost`: build, boot many times, and combine the results."""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from subprocess import Popen

from pageferry import output, paths, proc
from pageferry.bench import build
from pageferry.bench.cost import rows as cost
from pageferry.bench.job import make_result
from pageferry.bench.lines import Line, complete, environment_of, parse_line
from pageferry.bench.plan import MODULES
from pageferry.bench.target import describe_built, describe_machine, module_path
from pageferry.errors import ExitCode, PageferryError
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
from pageferry.vm import accel, klog, topology
from pageferry.vm.qemu import bare_machine

_TOPOLOGIES = {X86_64: "cost", ARM64: "versal-cost"}
# Demotion and promotion need tiers; the other paths use the same boot.
_TIERED = "tiered-cost"
_BOOT_LIMIT_S = 600.0
# The date would change the count, and so would random numbers, which accel.cpu_args()
# prevents.
_REPEATABLE = ("-rtc", "base=2020-01-01,clock=vm")


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
        seen = _run_boots(boots, program, self.jobs)
        samples = {
            boot: cost.samples_of(boot.engine, lines) for boot, lines in seen.items()
        }
        for boot in boots:
            if boot.again:
                cost.check_same(samples[replace(boot, again=False)], samples[boot])
        main = next((b for b in boots if b.engine != "stock"), boots[0])
        environment = environment_of(seen[main])
        stock = next((b for b in boots if b.engine == "stock"), None)
        counted = [boot for boot in boots if not boot.again]
        return make_result(
            *(begin, self.args),
            cost.make_rows([s for boot in counted for s in samples[boot]]),
            *(seen[main], describe_built(main.kernel, environment)),
            describe_machine(environment, ", ".join(self.machines), "tcg icount"),
            stock_kernel=None
            if stock is None
            else describe_built(stock.kernel, environment_of(seen[stock])),
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


def _boots(job: Job, kernels: dict[BuildRequest, BuiltKernel]) -> list[Boot]:
    """List all boots. The last boot of each machine repeats its first."""
    boots: list[Boot] = []
    for machine, counted in job.machines.items():
        first = len(boots)
        for engine in job.engines:
            kernel = kernels[job.request_for(engine)]
            modules = (module_path(kernel, engine),) if engine in MODULES else ()
            boots += [
                Boot(engine, n, kernel, modules, machine, job.sizes, job.pages, counted)
                for n in range(job.layouts)
            ]
        boots.append(replace(boots[first], again=True))
    return boots


def qemu_args(boot: Boot, initrd: Path) -> list[str]:
    """Return QEMU's command line."""
    arch = boot.kernel.arch
    machine = topology.load(boot.topology)
    # Warnings and errors reach the console, which is searched for them. Words unknown
    # to the kernel would become arguments of /init.
    words = [f"console={arch.console}", "loglevel=5", "panic=-1"]
    words += [*machine.kernel_words(), "--"]
    words += cost.init_arguments(
        *(boot.engine, boot.modules, boot.layout),
        *(boot.sizes, boot.pages, boot.paths),
    )
    return [
        *bare_machine(machine, accel.TCG, icount=True),
        *machine.qemu_args(),
        *_REPEATABLE,
        *("-serial", "stdio"),
        *("-kernel", str(boot.kernel.image), "-initrd", str(initrd)),
        *("-append", " ".join(words)),
    ]


@contextlib.contextmanager
def _booted(
    boot: Boot, program: Path, scratch: Path
) -> Iterator[tuple[Popen[bytes], Path]]:
    """Start one machine; the end of the block stops it."""
    initrd = scratch / f"{boot.name}.cpio"
    initrd.write_bytes(cost.initramfs(program, boot.modules, boot.layout))
    console = scratch / f"{boot.name}.log"
    with (
        console.open("wb") as stream,
        proc.group(qemu_args(boot, initrd), stdout=stream.fileno()) as process,
    ):
        yield process, console


def _run_boots(
    boots: Sequence[Boot], program: Path, jobs: int
) -> dict[Boot, list[Line]]:
    """Run all boots, a few at once: icount keeps each to one host CPU."""
    progress = output.Progress("counting", len(boots))
    results: dict[Boot, list[Line]] = {}
    waiting = list(boots)
    running: list[tuple[Boot, contextlib.ExitStack, Popen[bytes], Path, float]] = []
    with (
        tempfile.TemporaryDirectory(
            prefix="cost-", dir=paths.make_cache_dir("vm"), ignore_cleanup_errors=True
        ) as name,
        # At the end of this block, stop all machines that still run.
        contextlib.ExitStack() as machines,
    ):
        while waiting or running:
            while waiting and len(running) < jobs:
                boot = waiting.pop(0)
                stack = machines.enter_context(contextlib.ExitStack())
                process, console = stack.enter_context(
                    _booted(boot, program, Path(name))
                )
                deadline = time.monotonic() + _BOOT_LIMIT_S
                running.append((boot, stack, process, console, deadline))
            time.sleep(0.1)
            for entry in list(running):
                boot, stack, process, console, deadline = entry
                if process.poll() is None and time.monotonic() < deadline:
                    continue
                timed_out = process.poll() is None
                stack.close()
                running.remove(entry)
                results[boot] = _read(boot, console, timed_out=timed_out)
                progress.advance()
        progress.finish()
    return {boot: results[boot] for boot in boots}


def _read(boot: Boot, console: Path, *, timed_out: bool) -> list[Line]:
    """Read the output of a machine."""
    text = console.read_text(errors="replace")
    words = text.splitlines()
    tail = "\n".join(words[-40:])
    found = klog.findings(words, ())
    if found:
        raise PageferryError(
            "the kernel complained while pages moved",
            value=boot.name,
            detail="\n".join(found),
        )
    if timed_out:
        raise PageferryError(
            "a boot did not end in time",
            value=f"{boot.name}, {_BOOT_LIMIT_S:.0f} s",
            detail=tail,
            code=ExitCode.TIMEOUT,
        )
    lines = [
        line for word in words if (line := parse_line(word, cost.Cost)) is not None
    ]
    try:
        return complete(lines)
    except PageferryError as error:
        # Only the console tells why a guest ended.
        error.detail = tail
        error.value = boot.name
        raise
