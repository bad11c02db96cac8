# SPDX-License-Identifier: GPL-2.0-only
"""DMA engines of this machine, their channels, and the users of these."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from pageferry.dma import drivers
from pageferry.dma.drivers import Driver
from pageferry.sysfs.files import Files

CLASS = "/sys/class/dma"
SUMMARY = "/sys/kernel/debug/dmaengine/summary"
DCBM = "/sys/module/dcbm"
# dcbm acquires this many without a setting, and at most the second.
DEFAULT_CHANNELS = 16
MAX_CHANNELS = 64
# Modules that use channels for copying memory, and leave no name.
NAMELESS = {
    "async_tx": "RAID",
    "ntb_transport": "NTB",
    "ntb_perf": "NTB",
    "dmatest": "the test of Linux",
}
UNKNOWN = "not known"


@dataclass(frozen=True)
class Channel:
    """A channel, and its user; an empty user means that the channel is free."""

    name: str
    user: str


@dataclass
class Device:
    """A device with a DMA engine, or one that needs a driver."""

    name: str
    bus: str
    # The name of the bound driver; empty if there is none.
    bound: str
    # None: no driver of a memory-copy engine that we know.
    driver: Driver | None
    node: int = -1
    channels: list[Channel] = field(default_factory=list)

    @property
    def free(self) -> list[str]:
        """List the free channels."""
        return [channel.name for channel in self.channels if not channel.user]

    @property
    def taken(self) -> list[str]:
        """List the channels of dcbm."""
        return [channel.name for channel in self.channels if channel.user == "dcbm"]

    def users(self) -> dict[str, list[str]]:
        """Return the channels of each user."""
        found: dict[str, list[str]] = {}
        for channel in self.channels:
            if channel.user:
                found.setdefault(channel.user, []).append(channel.name)
        return found


def _order(name: str) -> tuple[int, ...]:
    """Sort dma10chan2 behind dma9chan3."""
    return tuple(map(int, re.findall(r"\d+", name)))


def read_devices(files: Files) -> list[Device]:
    """Read all devices with channels, then those of known drivers without any."""
    found: dict[str, Device] = {}
    named = _named_users(files)
    ours = files.names(f"{DCBM}/channels")
    for name in sorted(files.names(CLASS), key=_order):
        device = files.link(f"{CLASS}/{name}/device") or name.partition("chan")[0]
        if device not in found:
            found[device] = _device(files, device, f"{CLASS}/{name}/device")
        user = "dcbm" if name in ours else _user(files, name, named)
        found[device].channels.append(Channel(name, user))
    for bus in ("pci", "platform"):
        top = f"/sys/bus/{bus}/devices"
        for name in files.names(top):
            if name in found:
                continue
            modalias = files.read_or(f"{top}/{name}/modalias", "")
            if drivers.of_modalias(modalias):
                found[name] = _device(files, name, f"{top}/{name}")
    return list(found.values())


def _device(files: Files, name: str, path: str) -> Device:
    bound = files.link(f"{path}/driver")
    modalias = files.read_or(f"{path}/modalias", "")
    node = files.read_or(f"{path}/numa_node", "-1")
    return Device(
        name=name,
        bus=files.link(f"{path}/subsystem"),
        bound=bound,
        driver=drivers.of_name(bound) or drivers.of_modalias(modalias),
        node=int(node) if re.fullmatch(r"-?\d+", node) else -1,
    )


def _named_users(files: Files) -> dict[str, str]:
    """Read the names of users that dmaengine knows; debugfs may be absent."""
    lines = files.read_or(SUMMARY, "").splitlines()
    found = (re.match(r"\s+(dma\d+chan\d+)\s*\|\s*(\S+)", line) for line in lines)
    return {m[1]: m[2] for m in found if m is not None and m[2] != "in-use"}


def _user(files: Files, name: str, named: dict[str, str]) -> str:
    if files.read_or(f"{CLASS}/{name}/in_use", "0").strip() in ("", "0"):
        return ""
    return named.get(name) or files.link(f"{CLASS}/{name}/slave") or UNKNOWN


def suspects(files: Files) -> list[str]:
    """List loaded modules that may have channels without a name."""
    return [name for name in NAMELESS if files.exists(f"/sys/module/{name}")]


def allowed(files: Files) -> tuple[str, ...] | None:
    """Return the drivers that dcbm may take; None if this dcbm takes any driver.

    Without dcbm, the answer is the default of its parameter.
    """
    known = tuple(driver.name for driver in drivers.KNOWN)
    if not files.exists(DCBM):
        return known
    text = files.read_or(f"{DCBM}/parameters/devices", "\0")
    if text == "\0":
        return None
    return tuple(word for word in re.split(r"[,\s]+", text) if word)


def is_allowed(device: Device, names: tuple[str, ...] | None) -> bool | None:
    """Say whether dcbm may take a device's channels; None if it is not known.

    A dcbm without a list takes all channels that can copy memory. Linux shows that
    ability nowhere, so it is known only for drivers on our own list.
    """
    if names is None:
        return True if device.driver is not None and device.bound else None
    module = device.driver.module if device.driver else ""
    return bool(device.bound) and (device.bound in names or module in names)


def would_take(files: Files, devices: Sequence[Device]) -> list[str]:
    """List the channels that dcbm has, and those that it would take, in its order.

    In each round every device gives one channel, until there are enough.
    """
    names = allowed(files)
    queues = [[*d.taken, *d.free] for d in devices if is_allowed(d, names)]
    rounds = max(map(len, queues), default=0)
    order = [queue[i] for i in range(rounds) for queue in queues if i < len(queue)]
    return order[: wanted(files)]


def wanted(files: Files) -> int:
    """Return the number of channels that dcbm acquires at most."""
    text = files.read_or(f"{DCBM}/nr_dma_chan", "")
    return int(text) if text.isdecimal() else DEFAULT_CHANNELS
