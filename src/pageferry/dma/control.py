# SPDX-License-Identifier: GPL-2.0-only
"""Switch dcbm on: load its module, acquire channels, make it the engine."""

from __future__ import annotations

import errno
import os

from pageferry.dma import advice, devices
from pageferry.dma.devices import DCBM
from pageferry.errors import PageferryError, unsupported
from pageferry.sysfs.files import Files
from pageferry.sysfs.modules import AVAILABLE, LOADED, Modules
from pageferry.sysfs.offload import DIRECTORY, OFF, Offload, State, parse_reasons
from pageferry.sysfs.undo import Undo

NAME = "dcbm"
OFFLOADING = f"{DCBM}/offloading"
NR_CHANNELS = f"{DCBM}/nr_dma_chan"


def set_dcbm(
    files: Files,
    modules: Modules,
    *,
    only_for: str | None = None,
    channels: int | None = None,
) -> State:
    """Make dcbm the engine, in general or for reasons, and acquire its channels.

    If a step fails, or at Ctrl-C, all is as it was before.
    """
    offload = Offload(files)
    before = offload.read()
    if only_for is not None:
        parse_reasons(only_for, tuple(before.engine_of))
    with Undo(files) as undo:
        switch_on(files, modules, undo, channels)
        if only_for is not None and not files.dry_run:
            _give_back_general(offload, before)
        state = offload.set_engine(NAME, only_for=only_for, coming=(NAME,))
        undo.keep()
    return state


def switch_on(
    files: Files, modules: Modules, undo: Undo, channels: int | None = None
) -> None:
    """Load modules and acquire channels; `undo` gets the way back, engines too."""
    before = Offload(files).read()
    if NAME not in before.available_engines:
        _load(modules, undo, NAME)
    _load_drivers(files, modules, undo)
    undo.call("the engines", lambda: restore(Offload(files), before))
    if files.dry_run and not files.exists(DCBM):
        if channels is not None:
            files.write(NR_CHANNELS, str(channels))
        files.write(OFFLOADING, "1")
        return
    try:
        _acquire(files, undo, channels)
    except PageferryError as error:
        if error.reason != os.strerror(errno.ENODEV):
            raise
        raise _no_channel(files) from error


def _load(modules: Modules, undo: Undo, name: str) -> None:
    def unload() -> None:
        if modules.state(name) == LOADED:
            modules.unload(name)

    # modprobe may be interrupted after it has loaded the module.
    undo.call(name, unload)
    modules.load(name)


def _load_drivers(files: Files, modules: Modules, undo: Undo) -> None:
    """Without any channel, load the drivers of devices that have none."""
    found = devices.read_devices(files)
    if devices.would_take(files, found):
        return
    idle = [d.driver.module for d in found if d.driver is not None and not d.bound]
    for module in dict.fromkeys(idle):
        if modules.state(module) == AVAILABLE:
            _load(modules, undo, module)


def _acquire(files: Files, undo: Undo, channels: int | None) -> None:
    was_on = files.read(OFFLOADING).strip() == "1"
    if channels is not None:
        undo.set(NR_CHANNELS, str(channels))
    undo.set(OFFLOADING, "1")
    held = len(files.names(f"{DCBM}/channels"))
    if was_on and not files.dry_run and held < devices.wanted(files):
        # Devices may have come or gone since. A write acquires the missing channels.
        files.write(NR_CHANNELS, files.read(NR_CHANNELS).strip())


def _no_channel(files: Files) -> PageferryError:
    hints = [found.hint for found in advice.survey(files) if found.hint]
    return unsupported(
        "dcbm found no free DMA channel",
        files.path(OFFLOADING),
        "no device has a free channel, or the driver is not one that dcbm may take",
        hints[0] if hints else advice.NO_DEVICE,
    )


def _give_back_general(offload: Offload, before: State) -> None:
    """If no engine was active, dcbm has become the engine of all reasons."""
    if before.engine == OFF:
        restore(offload, before)


def restore(offload: Offload, before: State) -> None:
    """Set all engines as they were before."""
    files = offload.files
    if offload.read().engine != before.engine:
        files.write(f"{DIRECTORY}/engine", before.engine)
    for reason, engine in offload.read().engine_of.items():
        if engine != before.engine_of.get(reason, engine):
            files.write(f"{DIRECTORY}/engine_of/{reason}", before.engine_of[reason])
