# SPDX-License-Identifier: GPL-2.0-only
"""Describe each DMA engine for `pageferry doctor`, with the next command."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pageferry.dma import devices, drivers
from pageferry.dma.devices import Device
from pageferry.dma.drivers import Driver
from pageferry.sysfs.files import Files
from pageferry.sysfs.modules import AVAILABLE, MISSING, Modules

# List at most this many channels of a user by name.
_LISTED = 4
NO_DEVICE = "pageferry engine set mtcopy, which copies with several CPUs"
_READY = "pageferry engine check dcbm, then pageferry engine set dcbm"


@dataclass(frozen=True)
class Advice:
    """The state of one device, and the next command; empty if there is none."""

    device: Device
    # "loaded", "not loaded", "not in this kernel"; None without a known driver.
    module: str | None
    takes: tuple[str, ...]
    # None: dcbm tells only when it tries.
    allowed: bool | None
    detail: str
    hint: str

    @property
    def usable(self) -> bool:
        """Say whether dcbm has channels of the device, or would take some."""
        return bool(self.takes)

    def as_json(self) -> dict[str, object]:
        """Return the facts for --json."""
        driver = self.device.driver
        return {
            "device": self.device.name,
            "bus": self.device.bus,
            "node": self.device.node,
            "driver": self.device.bound or None,
            "known_driver": driver.name if driver else None,
            "module": driver.module if driver else None,
            "module_state": self.module,
            "channels": len(self.device.channels),
            "free_channels": len(self.device.free),
            "users": self.device.users(),
            "dcbm_may_take": self.allowed,
            "dcbm_takes": list(self.takes),
            "hint": self.hint or None,
        }


def survey(files: Files) -> list[Advice]:
    """Describe all devices."""
    found = devices.read_devices(files)
    takes = devices.would_take(files, found)
    return [_advise(files, device, takes) for device in found]


def _advise(files: Files, device: Device, takes: Sequence[str]) -> Advice:
    modules = Modules(files)
    state = modules.state(device.driver.module) if device.driver else None
    names = {channel.name for channel in device.channels}
    mine = tuple(name for name in takes if name in names)
    allowed = devices.is_allowed(device, devices.allowed(files))
    detail = _detail(files, device, state, mine, allowed)
    hint = _hint(files, device, state, mine, allowed)
    return Advice(device, state, mine, allowed, detail, hint)


def _detail(
    files: Files,
    device: Device,
    state: str | None,
    takes: Sequence[str],
    allowed: bool | None,
) -> str:
    what = device.driver.title if device.driver else "not a known memory-copy engine"
    if not device.bound:
        assert device.driver is not None
        return f"{what}: no driver: {device.driver.module} is {state}"
    parts = [f"{what}, driver {device.bound}"]
    if not device.channels:
        return f"{parts[0]}: no channels"
    parts.append(f"{len(device.free)} of {len(device.channels)} channels free")
    for user, names in device.users().items():
        more = f" and {len(names) - _LISTED} more" if len(names) > _LISTED else ""
        parts.append(f"{_user(files, user)} has {' '.join(names[:_LISTED])}{more}")
    if allowed is None:
        parts.append("dcbm may take them: this kernel's dcbm has no list of drivers")
    elif not allowed:
        parts.append("dcbm takes none: the driver is not on its list")
    else:
        parts.append(f"dcbm takes {len(takes)}")
    return "; ".join(parts)


def _user(files: Files, user: str) -> str:
    if user != devices.UNKNOWN:
        return user
    found = devices.suspects(files)
    if found:
        return f"a user without a name (perhaps {' or '.join(found)})"
    return "a user without a name"


def _hint(
    files: Files,
    device: Device,
    state: str | None,
    takes: Sequence[str],
    allowed: bool | None,
) -> str:
    driver = device.driver
    if driver is None:
        return ""
    page = f"docs/how-to/{driver.page}"
    if not device.bound:
        return _load(driver, state, page)
    if device.bound != driver.name:
        return f"{page}: give the device to {driver.name}, as {device.bound} has it"
    if not device.channels:
        if driver is drivers.IDXD:
            return f"{page}: configure a work queue of type kernel"
        return f"dmesg | grep {driver.module}, as the driver offers no channel"
    if allowed is False:
        return f"modprobe -r dcbm; modprobe dcbm devices={driver.name}"
    if device.taken:
        return "pageferry status"
    if takes:
        return _READY
    if device.free:
        enough = f"as dcbm takes {devices.wanted(files)} at most"
        return f"pageferry engine set dcbm --channels {devices.MAX_CHANNELS}, {enough}"
    found = devices.suspects(files)
    return f"modprobe -r {' '.join(found)}" if found else f"{page}: find the user"


def _load(driver: Driver, state: str | None, page: str) -> str:
    if state == AVAILABLE:
        return f"modprobe {driver.module}"
    if state == MISSING and driver.since:
        return f"{page}: the driver needs {driver.since}"
    if state == MISSING:
        return f"pageferry kernel package: this kernel lacks {driver.config}"
    return f"dmesg | grep {driver.module}, as the driver did not take the device"
