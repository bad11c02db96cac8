# SPDX-License-Identifier: GPL-2.0-only
"""One boot of the machine on which the packages are installed.

The guest has three disks: its root, an archive for it, and an empty disk for an archive
of results. The serial number of the second disk names the stage.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from helpers.proof_files import Entry, Stage, pack, read_results
from pageferry import output, proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.vm import accel, topology

GUEST = Path(__file__).with_name("proof_guest.py")
TOPOLOGY = "two-node"
RESULTS_BYTES = 64 << 20
# With emulated CPUs and a busy host a stage takes a quarter of an hour.
LIMIT_S = 3 * 3600.0
TAIL_LINES = 60


@dataclass(frozen=True)
class Direct:
    """A kernel that QEMU loads, before the disk has a boot loader."""

    kernel: Path
    initrd: Path
    words: str


def disk_args(number: int, path: Path, serial: str, *, boot: bool = False) -> list[str]:
    """Return QEMU's arguments for a disk."""
    drive = f"if=none,id=disk{number},format=raw,cache=unsafe,file={path}"
    device = f"virtio-blk-pci,drive=disk{number},serial={serial}"
    # QEMU gives index 0 to the loader of -kernel, and allows no number twice.
    return ["-drive", drive, "-device", device + (",bootindex=1" if boot else "")]


def command_line(
    disks: tuple[Path, Path, Path],
    stage: str,
    console: Path,
    chosen: str,
    direct: Direct | None = None,
) -> list[str]:
    """Return the command line of QEMU, which ends when the guest reboots."""
    root, given, results = disks
    argv = [accel.find_qemu(), *accel.cpu_args(chosen), "-machine", "q35"]
    argv += topology.load(TOPOLOGY).qemu_args()
    argv += ["-nodefaults", "-no-user-config", "-display", "none", "-no-reboot"]
    argv += ["-serial", f"file:{console}"]
    argv += disk_args(0, root, "root", boot=True)
    argv += disk_args(1, given, f"stage-{stage}")
    argv += disk_args(2, results, "results")
    if direct is not None:
        argv += ["-kernel", str(direct.kernel), "-initrd", str(direct.initrd)]
        argv += ["-append", direct.words]
    return argv


def boot(
    root: Path,
    stage: str,
    folder: Path,
    kernel: Path,
    entries: Iterable[Entry] = (),
    direct: Direct | None = None,
) -> Stage:
    """Boot once, run one stage, and return its results.

    `kernel` is any image, for a test of KVM. The console's log stays in the folder.
    """
    given, results = folder / f"{stage}.tar", folder / f"{stage}.results"
    console = folder / f"{stage}.log"
    pack(given, [Entry(GUEST.name, source=GUEST), *entries])
    results.unlink(missing_ok=True)
    with results.open("wb") as stream:
        stream.truncate(RESULTS_BYTES)
    console.write_bytes(b"")
    chosen = accel.choose(kernel)
    # Linux patches its code during boot. QEMU before 8.1 breaks that with a thread for
    # each CPU.
    chosen = accel.TCG_ONE_THREAD if chosen == accel.TCG else chosen
    output.talk(f"stage {stage}, {chosen}: booting, console in {console}")
    argv = command_line((root, given, results), stage, console, chosen, direct)
    said = run(argv, console)
    found = read_results(results)
    if not found.ended(stage):
        raise PageferryError(
            f"the guest did not end stage {stage}",
            value=console,
            reason=said or "the results are missing or incomplete",
            detail=proc.tail(console, TAIL_LINES),
            code=ExitCode.NOT_STARTED,
        )
    given.unlink()
    return found


def run(argv: list[str], console: Path) -> str:
    """Run QEMU until the guest ends; returns QEMU's messages."""
    with proc.group(argv) as process:
        try:
            said, _ = process.communicate(timeout=LIMIT_S)
        except subprocess.TimeoutExpired as error:
            raise PageferryError(
                "the guest did not end",
                value=console,
                reason=f"it still runs after {LIMIT_S:.0f} s",
                detail=proc.tail(console, TAIL_LINES),
                code=ExitCode.TIMEOUT,
            ) from error
    return said.decode(errors="replace").strip()
