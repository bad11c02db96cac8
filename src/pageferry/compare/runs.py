# SPDX-License-Identifier: GPL-2.0-only
"""Runs a program once, and measures what it got and what it cost others."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry import proc
from pageferry.compare import cgroup, figures, pressure
from pageferry.compare.figures import Figure, Found
from pageferry.compare.pressure import Target
from pageferry.errors import PageferryError
from pageferry.sysfs import memory
from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram
from pageferry.sysfs.pagebits import PAGE
from pageferry.watch import sources
from pageferry.watch.sources import Snapshot

# The shell joins the cgroup, and then becomes the program.
_JOIN = ("/bin/sh", "-c", 'echo $$ > "$0" && exec "$@"')
_TAIL_LINES = 20

WALL = Figure("wall time", "s", more_is_better=False)
USER = Figure("CPU time of the program", "s", more_is_better=False)
SYSTEM = Figure("its CPU time in the kernel", "s", more_is_better=False)
KERNEL = Figure("CPU time of the kernel, all of it", "s", more_is_better=False)
FAULTS = Figure("page faults", "", more_is_better=False)
STALLED = Figure("stalled for memory (PSI some)", "ms", more_is_better=False)
WAITS = Figure("waits for migrating folios", "", more_is_better=False)
WAIT_P99 = Figure("wait for a folio, p99", "us", more_is_better=False)
WAIT_MAX = Figure("wait for a folio, longest", "us", more_is_better=False)
NEIGHBOUR = Figure("copy rate of a neighbour", "GB/s")
MIGRATED = Figure("migrated", "MiB")
FAILED = Figure("pages that did not migrate", "", more_is_better=False)


@dataclass(frozen=True)
class Job:
    """The program and the kind of pressure, the same for all runs."""

    command: tuple[str, ...]
    pressure: str
    nodes: tuple[int, ...]
    pattern: re.Pattern[str] | None


def run(files: Files, job: Job, *, quiet: bool) -> Found:
    """Run the program once; quiet: without pressure."""
    with contextlib.ExitStack() as stack:
        needed = pressure.KINDS[job.pressure].needs_tiers
        group = stack.enter_context(cgroup.made(files, memory=needed))
        if group is None and needed:
            raise PageferryError(
                f"cannot make a cgroup, which --pressure {job.pressure} needs",
                value=files.path("/sys/fs/cgroup"),
                reason="demotion starts with memory.reclaim of cgroup version 2",
                hint="run it as root; --pressure move needs no cgroup",
            )
        told = stack.enter_context(tempfile.TemporaryFile())
        copies = stack.enter_context(_neighbour())
        argv: Sequence[str] = job.command
        if group is not None:
            argv = (*_JOIN, str(files.path(f"{group}/cgroup.procs")), *argv)
        before, kernel_s = sources.take(files, cgroups=False), _kernel_s(files)
        waits = memory.PRESSURE if group is None else f"{group}/memory.pressure"
        stalled_us = memory.stalled_us(files, waits)
        begin = time.monotonic()
        process = stack.enter_context(proc.group(argv, stdout=told.fileno()))
        with contextlib.ExitStack() as load:
            if not quiet:
                mover = pressure.mover(files)
                target = Target(files, process.pid, group, job.nodes, mover)
                load.enter_context(pressure.running(target, job.pressure))
            _, status, used = os.wait4(process.pid, 0)
            wall_s = time.monotonic() - begin
        process.returncode = os.waitstatus_to_exitcode(status)
        after = sources.take(files, cgroups=False)
        found: Found = {
            WALL: wall_s,
            USER: used.ru_utime,
            SYSTEM: used.ru_stime,
            KERNEL: _kernel_s(files) - kernel_s,
            FAULTS: used.ru_minflt + used.ru_majflt,
            STALLED: (memory.stalled_us(files, waits) - stalled_us) / 1e3,
            NEIGHBOUR: _rate(copies),
            **_migrated(before, after),
        }
        told.seek(0)
        text = told.read().decode(errors="replace")
    _check(job, process.returncode, text)
    return {**figures.find(text, job.pattern), **found}


def _check(job: Job, code: int, text: str) -> None:
    if code:
        how = f"signal {-code}" if code < 0 else f"exit code {code}"
        raise PageferryError(
            "the program failed",
            value=job.command[0],
            reason=how,
            hint="run it without pageferry first",
            detail="\n".join(text.splitlines()[-_TAIL_LINES:]),
        )


@contextlib.contextmanager
def _neighbour() -> Iterator[subprocess.Popen[bytes]]:
    path = Path(__file__).parent / "neighbour.py"
    with proc.group([sys.executable, "-I", path]) as process:
        assert process.stdout is not None
        # A signal before this line would end it without an answer.
        process.stdout.readline()
        yield process


def _rate(copies: subprocess.Popen[bytes]) -> float:
    """Stop the neighbour, and return its GB/s while it copied."""
    copies.send_signal(signal.SIGTERM)
    said, _ = copies.communicate()
    words = said.split()
    if len(words) != 2 or not all(word.isdigit() for word in words):
        # The OOM killer, for one, may have ended it.
        raise PageferryError(
            "the neighbour of the program ended early",
            value=f"exit code {copies.returncode}",
            reason=said.decode(errors="replace").strip().rpartition("\n")[2] or None,
            hint="dmesg | tail shows whether memory ran out",
        )
    done_bytes, took_ns = map(int, words)
    return done_bytes / took_ns


def _kernel_s(files: Files) -> float:
    """Return the CPU time of the kernel and of interrupts since boot."""
    words = files.read_or("/proc/stat", "").split()
    # cpu, user, nice, system, idle, iowait, irq, softirq
    ticks = sum(int(words[at]) for at in (3, 6, 7)) if len(words) > 7 else 0
    return ticks / os.sysconf("SC_CLK_TCK")


def _migrated(before: Snapshot, after: Snapshot) -> Found:
    """Return the growth of counters; only pageferry's kernel has waits."""
    success, fail = sources.VMSTAT
    grown = sources.grown(before.vmstat, after.vmstat)
    found: Found = {
        MIGRATED: grown.get(success, 0) * PAGE / (1 << 20),
        FAILED: grown.get(fail, 0),
    }
    if after.state is None:
        return found
    total: Counter[int] = Counter()
    longest = 0
    for reason, kinds in after.times.items():
        if "waited_hist" in kinds:
            old = before.times.get(reason, {}).get("waited_hist")
            grown_times = sources.histogram_grown(old, kinds["waited_hist"])
            total.update(dict(grown_times.buckets))
            longest = max(longest, grown_times.max_ns or 0)
    waits = Histogram(tuple(sorted(total.items())), longest or None)
    found[WAITS] = waits.count
    found[WAIT_P99] = (waits.percentile(99) or 0) / 1e3
    found[WAIT_MAX] = (waits.longest or 0) / 1e3
    return found
