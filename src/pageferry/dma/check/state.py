# SPDX-License-Identifier: GPL-2.0-only
"""Counters and settings that the steps of a check read and write."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path

from pageferry.dma import control, devices
from pageferry.dma.check.bench import Bench
from pageferry.dma.check.report import Report
from pageferry.dma.devices import DCBM, Device
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import Offload
from pageferry.sysfs.undo import Undo
from pageferry.vm import klog

TIMEOUT_MS = f"{DCBM}/parameters/timeout_ms"
CPU_SHARE = f"{DCBM}/parameters/cpu_share"


@dataclass
class Check:
    """A check in progress."""

    files: Files
    bench: Bench
    report: Report
    # Folio sizes that this kernel can move, known after the first step.
    sizes: tuple[int, ...] = ()

    @property
    def count(self) -> int:
        """Return the number of channels that the check uses."""
        return len(self.report.channels)

    @property
    def largest(self) -> tuple[int, ...]:
        """Return the largest folio size, as a list."""
        return self.sizes[-1:]

    def number(self, name: str) -> int:
        """Read a counter; a missing one is 0."""
        text = self.files.read_or(name, "0").strip()
        return int(text) if text.isdecimal() else 0

    def engine(self) -> dict[str, int]:
        """Read the counters of the engine dcbm."""
        return Offload(self.files).counters("engines").get(control.NAME, {})

    def channels(self, counter: str) -> dict[str, int]:
        """Read a counter of each channel."""
        top = f"{DCBM}/channels"
        return {n: self.number(f"{top}/{n}/{counter}") for n in self.files.names(top)}

    def is_busy(self) -> bool:
        """Say whether a channel copies now."""
        top = f"{DCBM}/channels"
        names = self.files.names(top)
        return any(self.files.read_or(f"{top}/{n}/state", "") == "busy" for n in names)

    def devices(self) -> list[Device]:
        """Return the devices whose channels dcbm has."""
        return [d for d in devices.read_devices(self.files) if d.taken]

    def use_all(self) -> None:
        """Acquire as many channels as the check began with."""
        self.files.write(control.NR_CHANNELS, str(max(self.count, 1)))

    def undo(self) -> Undo:
        """Return a block that takes its settings back at its end."""
        return Undo(self.files)


def grown(before: dict[str, int], after: dict[str, int], name: str) -> int:
    """Return by how much a counter has grown."""
    return after.get(name, 0) - before.get(name, 0)


class KernelLog:
    """The messages of the kernel since the beginning of the check."""

    def __init__(self, path: Path = Path("/dev/kmsg")) -> None:
        self._handle = -1
        self.obstacle = ""
        try:
            self._handle = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
            os.lseek(self._handle, 0, os.SEEK_END)
        except OSError as error:
            self.obstacle = f"{path}: {error.strerror}"

    def complaints(self) -> list[str] | None:
        """List warnings and worse since then; None if the log cannot be read."""
        if self.obstacle:
            return None
        lines = []
        while True:
            try:
                record = os.read(self._handle, 8192)
            except BlockingIOError:
                break
            except BrokenPipeError:
                # Newer messages have overwritten some. The next read goes on.
                continue
            if not record:
                break
            lines.append(record.decode(errors="replace").partition(";")[2])
        return klog.findings(lines)

    def close(self) -> None:
        """Close the log."""
        if self._handle >= 0:
            os.close(self._handle)
