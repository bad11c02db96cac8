# SPDX-License-Identifier: GPL-2.0-only
"""Boot a kernel with only an initramfs, for exact measurements.

Without 9P, virtio and host directories, the guest's execution depends only on the
image, the archive and the command line.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry import paths, proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.vm import accel, klog, topology
from pageferry.vm.qemu import bare_machine
from pageferry.vm.run import new_log


@dataclass(frozen=True)
class SerialOutput:
    """The guest's output on its serial line."""

    lines: tuple[str, ...]
    log: Path
    findings: tuple[str, ...]
    run_s: float


def boot_initramfs(
    image: Path,
    archive: bytes,
    *,
    machine_name: str = "cost",
    append: Sequence[str] = (),
    timeout_s: float = 600.0,
    preallocate: bool = False,
) -> SerialOutput:
    """Boot until the guest powers off (or panics) and return what it wrote.

    The archive is a cpio archive whose /init writes its results to the console
    and ends with reboot(RB_POWER_OFF). Under a topology with icount the same
    image, archive and words give the same output, digit for digit.
    """
    machine = topology.load(machine_name)
    log = new_log()
    arch = machine.architecture
    chosen = accel.TCG if machine.icount else accel.choose(image, arch)
    argv = bare_machine(machine, chosen, icount=machine.icount)
    argv += machine.qemu_args(preallocate=preallocate)
    # A fixed clock keeps the host's time out of the guest.
    argv += ["-rtc", "base=2000-01-01,clock=vm"] if machine.icount else []
    argv += ["-serial", f"file:{log}"]
    words = [f"console={arch.console}", "panic=-1", "nokaslr", "rdinit=/init"]
    words += [*machine.kernel_words(), *append]
    started = time.monotonic()
    with tempfile.NamedTemporaryFile(dir=paths.make_cache_dir("vm")) as packed:
        packed.write(archive)
        packed.flush()
        boot = ["-kernel", str(image), "-initrd", packed.name]
        argv += [*boot, "-append", " ".join(words)]
        said = _run_to_end(argv, timeout_s, log)
    text = log.read_text(errors="replace")
    lines = tuple(line.rstrip("\r") for line in text.split("\n"))
    if not any("Linux version" in line or line.strip() for line in lines):
        raise PageferryError(
            "the guest did not boot",
            value=log,
            reason=said.strip().splitlines()[-1] if said.strip() else "no output",
            code=ExitCode.NOT_STARTED,
        )
    found = tuple(klog.findings(lines))
    return SerialOutput(lines, log, found, time.monotonic() - started)


def _run_to_end(argv: Sequence[str], timeout_s: float, log: Path) -> str:
    with proc.group(argv, env={**os.environ, "PATH": paths.venv_path()}) as process:
        try:
            said, _ = process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired as error:
            raise _timed_out(timeout_s, log) from error
    return said.decode(errors="replace")


def _timed_out(timeout_s: float, log: Path) -> PageferryError:
    return PageferryError(
        "the guest was still running",
        value=log,
        reason=f"after {timeout_s:g} s",
        detail=proc.tail(log, 40),
        hint=f"less {log}",
        code=ExitCode.TIMEOUT,
    )
