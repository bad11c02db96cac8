# SPDX-License-Identifier: GPL-2.0-only
"""Run a whole check, and leave every setting as it was."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from pageferry import output
from pageferry.bench import build
from pageferry.dma import control, devices
from pageferry.dma.check import disturb, steps
from pageferry.dma.check.bench import Bench
from pageferry.dma.check.report import UNKNOWN, Finding, Report, Trust
from pageferry.dma.check.state import CPU_SHARE, TIMEOUT_MS, Check, KernelLog
from pageferry.dma.devices import DCBM, MAX_CHANNELS
from pageferry.errors import unsupported
from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.modules import Modules
from pageferry.sysfs.nodes import Node, read_nodes
from pageferry.sysfs.offload import DIRECTORY, Offload
from pageferry.sysfs.undo import Undo, guarded
from pageferry.units import MIB, PMD_BYTES, format_size

_DEBUG = "/sys/kernel/debug/migrate_offload"
# bench/move_pages restores these. It cannot if it is killed.
_REMEMBERED = (
    *(f"{_DEBUG}/verify", f"{_DEBUG}/engine_always"),
    *(f"{DIRECTORY}/batch_ptes", f"{DIRECTORY}/copy_routine"),
    *(f"{DCBM}/offloading", f"{DCBM}/nr_dma_chan"),
    *(CPU_SHARE, TIMEOUT_MS),
)
_TOTAL = 64 * MIB
# Leave most of the memory to other programs.
_SHARE_OF_FREE = 8


def plan(files: Files) -> tuple[Node, Node, int]:
    """Choose two nodes and the bytes of each call, or raise an error."""
    Offload(files).require()
    if os.geteuid() != 0:
        raise unsupported(
            "only root may choose an engine",
            f"uid {os.geteuid()}",
            hint="run it as root",
        )
    found = [node for node in read_nodes(files) if node.total_bytes]
    if len(found) < 2:
        raise unsupported(
            "pages need a second node to move to",
            f"{len(found)} nodes with memory",
            hint="boot with numa=fake=2, which makes two nodes of one",
        )
    source = next((node for node in found if node.cpus), found[0])
    target = next(node for node in found if node is not source)
    free = min(source.free_bytes, target.free_bytes)
    total = min(_TOTAL, free // _SHARE_OF_FREE // PMD_BYTES * PMD_BYTES)
    if not total:
        raise unsupported(
            "too little free memory for a check",
            f"{format_size(free)} on node {source.number} or {target.number}",
            hint=f"free {format_size(_SHARE_OF_FREE * PMD_BYTES)} on each",
        )
    return source, target, total


def describe(files: Files, *, with_disturb: bool) -> list[str]:
    """List the steps of a check."""
    source, target, total = plan(files)
    writes = [
        *(f"{DIRECTORY}/engine", f"{DIRECTORY}/engine_of/*"),
        *_REMEMBERED,
    ]
    where = f"from node {source.number} to node {target.number}"
    lines = [
        "load dcbm, and acquire all free DMA channels",
        f"move {format_size(total)} {where} with every folio size, verify every byte",
        "measure each number of channels, each channel, and each size of transfer",
        "switch dcbm off while it copies",
    ]
    if with_disturb:
        lines += [
            "let transfers time out after 1 ms",
            "unbind each device from its driver while it copies, and bind it again",
        ]
    return [*lines, *(f"write and restore {files.path(name)}" for name in writes)]


def run(files: Files, *, with_disturb: bool) -> Report:
    """Run all steps. At the end, also by Ctrl-C or SIGKILL, settings are as they were."""
    source, target, total = plan(files)
    program = build.build() / "move_pages"
    with (
        lock.hold_settings(files) as handle,
        contextlib.closing(KernelLog()) as log,
        Undo(files) as undo,
    ):
        before = _switched(files)
        control.switch_on(files, Modules(files), undo, MAX_CHANNELS)
        for name in _REMEMBERED:
            undo.remember(name)
        changed = [n for n in _REMEMBERED if n not in before and files.read_or(n, "")]
        settings = [(name, files.read(name).strip()) for name in changed]
        # The guard stays until `undo` has done its work.
        with guarded(files, [*settings, *before.items()], handle) as guard_fd, undo:
            nodes = (source.number, target.number)
            check = _begin(files, program, nodes, total, guard_fd)
            try:
                _all_steps(check, log, with_disturb=with_disturb)
            finally:
                check.bench.progress.finish()
    return check.report


def _switched(files: Files) -> dict[str, str]:
    """Return what switching dcbm on changes, in the order of the way back.

    The kernel forgets engines of reasons when the engine changes, so they come last.
    """
    state = Offload(files).read()
    # A module that is not loaded yet holds no channel.
    before = {control.OFFLOADING: files.read_or(control.OFFLOADING, "0").strip()}
    if files.exists(control.NR_CHANNELS):
        before[control.NR_CHANNELS] = files.read(control.NR_CHANNELS).strip()
    before[f"{DIRECTORY}/engine"] = state.engine
    for reason, engine in state.engine_of.items():
        before[f"{DIRECTORY}/engine_of/{reason}"] = engine
    return before


def _begin(
    files: Files, program: Path, nodes: tuple[int, int], total: int, guard_fd: int
) -> Check:
    names = files.names(f"{DCBM}/channels")
    found = [d for d in devices.read_devices(files) if d.taken]
    report = Report(channels=names, drivers=sorted({d.bound for d in found}))
    progress = output.Progress("checking dcbm", steps.measurements(len(names)))
    output.talk(f"dcbm has {len(names)} channels of {', '.join(d.name for d in found)}")
    bench = Bench(program, *nodes, total, progress, guard_fd)
    check = Check(files, bench, report)
    # The program asks for exactly so many.
    check.use_all()
    return check


def _all_steps(check: Check, log: KernelLog, *, with_disturb: bool) -> None:
    report = check.report
    report.findings.append(steps.copies(check))
    # Wrong data: the other figures mean nothing, and more copies only risk more.
    if report.ok:
        report.findings += steps.rates(check)
        report.findings.append(steps.pieces(check))
        report.findings.append(steps.switched_off(check))
    for device in check.devices():
        trust = Trust(
            device.name,
            device.bound,
            disturb.dcbm_believes(check, device),
            disturb.assumed_to_stop(check, device),
        )
        report.trust.append(trust)
        if report.ok:
            report.findings += disturb.errors(check, device)
        report.findings.append(disturb.stops(check, device))
    if report.ok:
        report.findings += _disturbed(check) if with_disturb else _undisturbed()
    report.findings.append(_log(log))


def _disturbed(check: Check) -> list[Finding]:
    found = [disturb.timed_out(check)]
    for device in check.devices():
        if any(finding.failed for finding in found):
            break
        found.append(disturb.unbound(check, device))
    return found


def _undisturbed() -> list[Finding]:
    return [
        Finding(question, UNKNOWN, disturb.NOT_TRIED)
        for question in ("gives late transfers back", "unbind while busy")
    ]


def _log(log: KernelLog) -> Finding:
    question = "kernel log clean"
    found = log.complaints()
    if found is None:
        return Finding(question, UNKNOWN, log.obstacle)
    if found:
        return Finding(question, "no", found[0], failed=True)
    return Finding(question, "yes")
