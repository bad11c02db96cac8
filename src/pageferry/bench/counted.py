# SPDX-License-Identifier: GPL-2.0-only
"""Machines whose clock counts instructions, and that run a program of bench/ as /init.

Nothing else runs in them, so the same image and initramfs give the same digits.
"""

from __future__ import annotations

import argparse
import contextlib
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import Popen

from pageferry import output, paths, proc
from pageferry.bench.job import make_result
from pageferry.bench.lines import Line, complete, environment_of, parse_line
from pageferry.bench.target import Kinds, describe_built, describe_machine
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Result, Row
from pageferry.vm import accel, klog, topology
from pageferry.vm.cpio import Archive
from pageferry.vm.qemu import bare_machine

# The date would change the count, and so would random numbers, which accel.cpu_args()
# prevents.
_REPEATABLE = ("-rtc", "base=2020-01-01,clock=vm")


# The name of a disk's content.
DISK = "disk.img"


@dataclass(frozen=True)
class Machine:
    """One boot of one kernel with one program."""

    # In files and messages.
    name: str
    topology: str
    kernel: BuiltKernel
    program: Path
    # The arguments of /init, after "--" on the kernel command line.
    arguments: tuple[str, ...]
    modules: tuple[Path, ...] = ()
    # Kernel parameters.
    words: tuple[str, ...] = ()
    # More of the initramfs, which moves the data of the kernel.
    padding_bytes: int = 0
    # The content of a disk, as a file of the initramfs.
    disk: bytes | None = field(default=None, repr=False)
    limit_s: float = 600.0


def initramfs(
    program: Path,
    modules: Sequence[Path],
    padding_bytes: int,
    disk: bytes | None = None,
) -> bytes:
    """Make the initramfs of a program."""
    archive = Archive()
    for name in ("dev", "proc", "sys"):
        archive.directory(name)
    archive.character_device("dev/console", 5, 1)
    archive.file("init", program.read_bytes(), 0o755)
    for module in modules:
        archive.file(module.name, module.read_bytes())
    if disk is not None:
        archive.file(DISK, disk)
    archive.file("padding", b"\0" * padding_bytes)
    return archive.bytes()


def qemu_args(boot: Machine, initrd: Path) -> list[str]:
    """Return QEMU's command line."""
    arch = boot.kernel.arch
    machine = topology.load(boot.topology)
    # Warnings and errors reach the console, which is searched for them. Words unknown
    # to the kernel would become arguments of /init.
    words = [f"console={arch.console}", "loglevel=5", "panic=-1"]
    words += [*machine.kernel_words(icount=True), *boot.words, "--", *boot.arguments]
    return [
        *bare_machine(machine, accel.TCG, icount=True),
        *machine.qemu_args(),
        *_REPEATABLE,
        *("-serial", "stdio"),
        *("-kernel", str(boot.kernel.image), "-initrd", str(initrd)),
        *("-append", " ".join(words)),
    ]


@contextlib.contextmanager
def _booted(boot: Machine, scratch: Path) -> Iterator[tuple[Popen[bytes], Path]]:
    """Start one machine; the end of the block stops it."""
    boot.kernel.require_unchanged()
    initrd = scratch / f"{boot.name}.cpio"
    initrd.write_bytes(
        initramfs(boot.program, boot.modules, boot.padding_bytes, boot.disk)
    )
    console = scratch / f"{boot.name}.log"
    with (
        console.open("wb") as stream,
        proc.group(
            proc.ends_with_us(qemu_args(boot, initrd)), stdout=stream.fileno()
        ) as process,
    ):
        yield process, console


def run(boots: Sequence[Machine], kinds: Kinds, jobs: int) -> list[list[Line]]:
    """Run all boots, a few at once, and return the lines of each.

    icount keeps each machine to one CPU of the host.
    """
    progress = output.Progress("counting", len(boots))
    results: dict[Machine, list[Line]] = {}
    waiting = list(boots)
    running: list[tuple[Machine, contextlib.ExitStack, Popen[bytes], Path, float]] = []
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
                process, console = stack.enter_context(_booted(boot, Path(name)))
                deadline = time.monotonic() + boot.limit_s
                running.append((boot, stack, process, console, deadline))
            time.sleep(0.1)
            for entry in list(running):
                boot, stack, process, console, deadline = entry
                if process.poll() is None and time.monotonic() < deadline:
                    continue
                timed_out = process.poll() is None
                stack.close()
                running.remove(entry)
                results[boot] = _read(boot, console, kinds, timed_out=timed_out)
                progress.advance()
        progress.finish()
    return [results[boot] for boot in boots]


def _read(boot: Machine, console: Path, kinds: Kinds, *, timed_out: bool) -> list[Line]:
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
            value=f"{boot.name}, {boot.limit_s:.0f} s",
            detail=tail,
            code=ExitCode.TIMEOUT,
        )
    lines = [line for word in words if (line := parse_line(word, *kinds)) is not None]
    try:
        return complete(lines)
    except PageferryError as error:
        # Only the console tells why a guest ended.
        error.detail = tail
        error.value = boot.name
        raise


def result(
    begin_ns: int,
    args: argparse.Namespace,
    rows: list[Row],
    seen: Sequence[tuple[str, Machine, list[Line]]],
    topologies: str,
) -> Result:
    """Make a result of rows, and of all boots: their engine, machine and lines."""
    _, boot, lines = next((one for one in seen if one[0] != "stock"), seen[0])
    here = environment_of(lines)
    stock = None
    for engine, vanilla, said in seen:
        if engine == "stock" and stock is None:
            stock = describe_built(vanilla.kernel, environment_of(said))
    return make_result(
        *(begin_ns, args, rows, lines, describe_built(boot.kernel, here)),
        describe_machine(here, topologies, "tcg icount"),
        stock_kernel=stock,
    )
