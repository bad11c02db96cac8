# SPDX-License-Identifier: GPL-2.0-only
"""A machine with DMA engines and dcbm, as files that behave like the kernel's."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from pageferry.dma.devices import CLASS, DCBM, SUMMARY
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import DIRECTORY

DEBUG = "/sys/kernel/debug/migrate_offload"
RELEASE = "6.12.9-test"
DSA = "pci:v00008086d00000B25sv00008086sd00000000bc08sc80i00"
IOAT = "pci:v00008086d00002021sv00008086sd00000000bc08sc80i00"
PTDMA = "pci:v00001022d00001498sv00001022sd00001498bc08sc80i00"
AE4DMA = "pci:v00001022d0000149Bsv00001022sd0000149Bbc08sc80i00"
SDXI = "pci:v00001022d0000FFFFsv00001022sd00000000bc12sc01i00"
ZDMA = "of:Ndma-controllerT(null)Cxlnx,zynqmp-dma-1.0"
DMASIM = "platform:dmasim"
SOUND = "of:NdmaT(null)Carm,pl330Carm,primecell"


def put(files: Files, name: str, text: str) -> None:
    """Write a file, and make its directory."""
    path = files.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n")


def _link(files: Files, name: str, target: Path | str) -> None:
    path = files.path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(target)


def add_modules(files: Files, *names: str) -> None:
    """Add modules that modprobe would find."""
    put(files, "/proc/sys/kernel/osrelease", RELEASE)
    lines = [f"kernel/drivers/dma/{name}.ko.xz: " for name in names]
    put(files, f"/lib/modules/{RELEASE}/modules.dep", "\n".join(lines))


def add_device(
    files: Files,
    name: str,
    modalias: str,
    *,
    driver: str = "",
    bus: str = "pci",
    first: int = 0,
    channels: int = 0,
    busy: Sequence[int] = (),
    node: int = 0,
) -> None:
    """Add a device with channels dma<first>chan<N>, some of them in use."""
    top = f"/sys/devices/{name}"
    put(files, f"{top}/modalias", modalias)
    put(files, f"{top}/numa_node", str(node))
    files.path(f"/sys/bus/{bus}/devices").mkdir(parents=True, exist_ok=True)
    _link(files, f"{top}/subsystem", files.path(f"/sys/bus/{bus}"))
    _link(files, f"/sys/bus/{bus}/devices/{name}", files.path(top))
    if driver:
        where = f"/sys/bus/{bus}/drivers/{driver}"
        put(files, f"{where}/bind", "")
        put(files, f"{where}/unbind", "")
        _link(files, f"{top}/driver", files.path(where))
    for number in range(channels):
        channel = f"{CLASS}/dma{first}chan{number}"
        put(files, f"{channel}/in_use", "1" if number in busy else "0")
        _link(files, f"{channel}/device", files.path(top))


def add_users(files: Files, **names: str) -> None:
    """Have dmaengine know the users of channels."""
    lines = [f" {channel:13}| {user}" for channel, user in names.items()]
    put(files, SUMMARY, "\n".join(["dma0 (x): number of channels: 4", *lines]))


def add_offload(files: Files, *engines: str) -> None:
    """Add the control files of a kernel with pageferry's changes."""
    settings = {
        "engine": "none",
        "available_engines": " ".join(["none", "cpu", *engines]),
        "engine_of/damon": "default",
        "engine_of/demotion": "default",
        "max_unmapped_us": "0",
    }
    for name, value in settings.items():
        put(files, f"{DIRECTORY}/{name}", value)
    for name in ("verify", "engine_always"):
        put(files, f"{DEBUG}/{name}", "0")


def add_dcbm(files: Files, devices: str | None = None) -> None:
    """Load dcbm; devices: its list of drivers, None: this dcbm has no list."""
    counters = ("folios_migrated", "folios_failures", "held_folios", "held_folios_now")
    for name in ("offloading", *counters):
        put(files, f"{DCBM}/{name}", "0")
    put(files, f"{DCBM}/nr_dma_chan", "16")
    put(files, f"{DCBM}/parameters/cpu_share", "Y")
    put(files, f"{DCBM}/parameters/timeout_ms", "1000")
    files.path(f"{DCBM}/channels").mkdir()
    if devices is not None:
        put(files, f"{DCBM}/parameters/devices", devices)
    put(files, f"{DIRECTORY}/available_engines", "none cpu dcbm")
    for name in ("engine_folios", "failed_folios", "mismatched_folios", "held_folios"):
        put(files, f"{DIRECTORY}/stats/engines/dcbm/{name}", "0")


@dataclass
class FakeDma(Files):
    """A kernel whose dcbm takes channels when it is switched on."""

    # Writes to these files fail with this error.
    failing: dict[str, int] = field(default_factory=dict)
    log: list[str] = field(default_factory=list)

    def write(self, name: str, value: str) -> None:
        """Do the same as the kernel on a write."""
        if not self.dry_run:
            if name in self.failing:
                reason = os.strerror(self.failing[name])
                raise PageferryError(f"cannot write to {name}", reason=reason)
            self.log.append(f"{value} > {name}")
            self._react(name, value)
        super().write(name, value)

    def get(self, name: str) -> str:
        """Read a file of dcbm, or of the batch copy."""
        return self.read(name).strip()

    def _react(self, name: str, value: str) -> None:
        if name == f"{DCBM}/offloading":
            self._switch(value == "1")
        elif name == f"{DCBM}/nr_dma_chan" and self.get(f"{DCBM}/offloading") == "1":
            self._give_back()
            self._acquire(int(value))
        elif name == f"{DIRECTORY}/engine" and value == "none":
            for reason in self.names(f"{DIRECTORY}/engine_of"):
                if self.get(f"{DIRECTORY}/engine_of/{reason}") != "none":
                    put(self, f"{DIRECTORY}/engine_of/{reason}", "default")
        elif name.endswith(("/bind", "/unbind")):
            self._bind(name, value)

    def _switch(self, on: bool) -> None:
        if not on:
            self._give_back()
            if self.get(f"{DIRECTORY}/engine") == "dcbm":
                put(self, f"{DIRECTORY}/engine", "none")
            return
        if not self._acquire(int(self.get(f"{DCBM}/nr_dma_chan"))):
            raise PageferryError(
                "cannot write '1' to", reason=os.strerror(errno.ENODEV), value=DCBM
            )
        if self.get(f"{DIRECTORY}/engine") == "none":
            put(self, f"{DIRECTORY}/engine", "dcbm")

    def _acquire(self, most: int) -> int:
        taken = 0
        for name in self.names(CLASS):
            if taken < most and self.get(f"{CLASS}/{name}/in_use") == "0":
                put(self, f"{CLASS}/{name}/in_use", "1")
                for counter in ("bytes", "errors", "timeouts", "in_doubt"):
                    put(self, f"{DCBM}/channels/{name}/{counter}", "0")
                put(self, f"{DCBM}/channels/{name}/state", "busy")
                put(self, f"{DCBM}/channels/{name}/terminate_stops", "0")
                put(self, f"{DCBM}/channels/{name}/reset", "")
                taken += 1
        return taken

    def _give_back(self) -> None:
        for name in self.names(f"{DCBM}/channels"):
            put(self, f"{CLASS}/{name}/in_use", "0")
            shutil.rmtree(self.path(f"{DCBM}/channels/{name}"))

    def _bind(self, name: str, device: str) -> None:
        link = self.path(f"/sys/devices/{device}/driver")
        link.unlink(missing_ok=True)
        if name.endswith("/bind"):
            link.symlink_to(self.path(name).parent)
