# SPDX-License-Identifier: GPL-2.0-only
"""The steps that make transfers fail, time out, or lose their device."""

from __future__ import annotations

import re
import time

from pageferry.dma import drivers
from pageferry.dma.check.bench import Mover
from pageferry.dma.check.report import UNKNOWN, Finding
from pageferry.dma.check.state import TIMEOUT_MS, Check, grown
from pageferry.dma.devices import CLASS, DCBM, Device
from pageferry.errors import PageferryError
from pageferry.units import BASE_BYTES

_DMASIM = "/sys/kernel/debug/dmasim"
# Only a newer dcbm has this parameter.
_TRUST_ERRORS = f"{DCBM}/parameters/trust_errors"
# Faults of dmasim: the question, the switch and the counter. Only a newer dmasim can
# report an error as success.
_FAULTS = (
    ("errors", "fail_every", "errors"),
    ("hidden errors", "hide_error_every", "hidden"),
)
# Every fifth descriptor fails. No channel has so many failures in a row that dcbm
# gives the channel up.
_FAIL_EVERY = "5"
_BUSY_S = 10.0
_LATE_S = 10.0
_BACK_S = 10.0
NOT_TRIED = "not tried; --disturb tries it"


def errors(check: Check, device: Device) -> list[Finding]:
    """Answer whether the errors that a driver reports can be believed."""
    if device.driver is drivers.DMASIM:
        return [
            _injected(check, device, *fault)
            for fault in _FAULTS
            if fault is _FAULTS[0] or _switches(check, device, fault[1])
        ]
    believes = dcbm_believes(check, device)
    detail = (
        "Linux has no way to make this device fail; "
        f"{'dcbm believes it' if believes else 'dcbm looks at the end of each piece'}; "
        f"{_source(device, 'errors')}"
    )
    return [Finding(f"errors of {device.name}", UNKNOWN, detail)]


def dcbm_believes(check: Check, device: Device) -> bool:
    """Say whether dcbm believes the driver. An older dcbm believes every driver."""
    names = check.files.read_or(_TRUST_ERRORS, device.bound)
    return device.bound in re.split(r"[,\s]+", names)


def assumed_to_stop(check: Check, device: Device) -> bool | None:
    """Say whether dcbm assumes that terminating stops a device; None if mixed."""
    top = f"{DCBM}/channels"
    values = {
        check.files.read_or(f"{top}/{name}/terminate_stops", "0").strip()
        for name in device.taken
    }
    return values == {"1"} if len(values) == 1 else None


def stops(check: Check, device: Device) -> Finding:
    """Answer whether terminating stops a device."""
    words = {True: "dcbm assumes yes", False: "dcbm assumes no"}
    answer = assumed_to_stop(check, device)
    assumed = "dcbm's channels differ" if answer is None else words[answer]
    detail = (
        "Linux cannot see whether a device still writes after it was terminated; "
        f"{assumed}; {_source(device, 'stopping')}"
    )
    return Finding(f"{device.name} stops", UNKNOWN, detail)


def _source(device: Device, what: str) -> str:
    driver = device.driver
    if driver is None:
        return f"pageferry has not read the source of {device.bound}"
    of_linux = not driver.since and driver is not drivers.DMASIM
    where = "the source of Linux 6.12" if of_linux else "its source"
    known = driver.errors if what == "errors" else driver.stopping
    return f"{where}: {known}"


def _switches(check: Check, device: Device, name: str) -> list[str]:
    """List the switches of a fault, one for each channel."""
    top = f"{_DMASIM}/{device.name}"
    found = [f"{top}/{channel}/{name}" for channel in check.files.names(top)]
    return [switch for switch in found if check.files.exists(switch)]


def _injected(
    check: Check, device: Device, what: str, switch: str, counter: str
) -> Finding:
    """Have the simulated device fail, and compare its count with dcbm's."""
    question = f"{what} of {device.name}"
    switches = _switches(check, device, switch)
    if not switches:
        top = check.files.path(f"{_DMASIM}/{device.name}")
        return Finding(question, UNKNOWN, f"{top} has no faults")
    counters = [f"{path.rpartition('/')[0]}/{counter}" for path in switches]
    sizes = [size for size in check.sizes if size in (BASE_BYTES, *check.largest)]
    variants = [f"dcbm:channels={check.count}"]
    # A page stays while dcbm does not know whether the device still writes.
    argv = check.bench.argv(
        variants, sizes, 1, verify=True, may_stay=switch != "fail_every"
    )
    before, heard = check.engine(), check.channels("errors")
    made = sum(map(check.number, counters))
    try:
        with check.undo() as undo:
            for path in switches:
                undo.set(path, _FAIL_EVERY)
            check.bench.run(argv)
    except PageferryError as error:
        return Finding(question, "no", error.line(), failed=True)
    made = sum(map(check.number, counters)) - made
    told = sum(grown(heard, check.channels("errors"), name) for name in heard)
    wrong = grown(before, check.engine(), "mismatched_folios")
    if not made:
        return Finding(question, UNKNOWN, "the simulated device did not fail")
    found = told >= made and not wrong
    detail = f"{made} transfers failed, dcbm noticed {told}, {wrong} folios differed"
    return Finding(question, "yes" if found else "no", detail, failed=not found)


def _delay(check: Check) -> None:
    """Have simulated devices be late once. Others cannot be told to."""
    for device in check.devices():
        if device.driver is drivers.DMASIM:
            for switch in _switches(check, device, "late_nth")[:1]:
                check.files.write(switch, "1")


def timed_out(check: Check) -> Finding:
    """Let transfers time out, and wait until the device has given them back."""
    question = "gives late transfers back"
    before = sum(check.channels("timeouts").values())
    try:
        with check.bench.mover(check.largest) as mover:
            with check.undo() as undo:
                undo.set(TIMEOUT_MS, "1")
                _delay(check)
                late = mover.until(
                    lambda: sum(check.channels("timeouts").values()) > before, _LATE_S
                )
            if not late:
                detail = f"no transfer took longer than 1 ms in {_LATE_S:.0f} s"
                return Finding(question, UNKNOWN, detail)
            end = time.monotonic() + _BACK_S
            while _held(check) and time.monotonic() < end:
                time.sleep(0.05)
            held = _held(check)
            if not held:
                _use_again(check)
                mover.move_on()
    except PageferryError as error:
        return Finding(question, "no", error.line(), failed=True)
    if held:
        detail = f"{held} transfers or folios are held {_BACK_S:.0f} s later"
        return Finding(question, "no", detail, failed=True)
    return Finding(question, "yes", "after a timeout of 1 ms")


def _held(check: Check) -> int:
    folios = check.number(f"{DCBM}/held_folios_now")
    return max(folios, *check.channels("in_doubt").values(), 0)


def _use_again(check: Check) -> None:
    """Use channels again that dcbm has given up."""
    for name in check.files.names(f"{DCBM}/channels"):
        if check.files.read_or(f"{DCBM}/channels/{name}/state", "") == "retired":
            check.files.write(f"{DCBM}/channels/{name}/reset", "1")


def unbound(check: Check, device: Device) -> Finding:
    """Unbind a device from its driver while it copies, and bind it again."""
    question = f"unbind of {device.name} while busy"
    if device.driver is drivers.IDXD:
        detail = "not tried: an unbind loses the configuration of the work queues"
        return Finding(question, UNKNOWN, detail)
    others = [user for user in device.users() if user != "dcbm"]
    if others:
        detail = f"not tried: {' and '.join(others)} has channels of the device, too"
        return Finding(question, UNKNOWN, detail)
    top = f"/sys/bus/{device.bus}/drivers/{device.bound}"
    if not check.files.exists(f"{top}/unbind"):
        return Finding(question, UNKNOWN, f"{check.files.path(top)} has no unbind")
    try:
        with check.bench.mover(check.largest) as mover, check.undo() as undo:
            if not mover.until(check.is_busy, _BUSY_S):
                return Finding(question, UNKNOWN, "no channel was seen copying")
            undo.call(device.name, lambda: _bind(check, device, top))
            channels = len(check.files.names(CLASS))
            start = time.monotonic()
            check.files.write(f"{top}/unbind", device.name)
            spent_s = time.monotonic() - start
            mover.move_on()
            _bind(check, device, top)
            _rejoin(check, mover, channels)
            mover.move_on()
    except PageferryError as error:
        return Finding(question, "no", error.line(), failed=True)
    return Finding(question, "yes", f"it took {spent_s * 1000:.0f} ms")


def _bind(check: Check, device: Device, top: str) -> None:
    where = f"/sys/bus/{device.bus}/devices/{device.name}/driver"
    if not check.files.exists(where):
        check.files.write(f"{top}/bind", device.name)


def _rejoin(check: Check, mover: Mover, channels: int) -> None:
    """Acquire the channels of a device that is back."""

    def all_there() -> bool:
        return len(check.files.names(CLASS)) >= channels

    if not mover.until(all_there, _BACK_S):
        raise PageferryError(
            "the channels did not come back after bind",
            value=check.files.path(CLASS),
            hint="dmesg | tail",
        )
    check.use_all()
