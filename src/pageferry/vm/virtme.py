# SPDX-License-Identifier: GPL-2.0-only
"""Machines that see the host's root: put together by virtme-run, over 9P."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import paths
from pageferry.errors import unsupported
from pageferry.vm import accel, guest
from pageferry.vm.topology import Topology

if TYPE_CHECKING:
    from pageferry.vm.run import VmRequest

# Says how QEMU ended, which virtme-run does not.
_QEMU = Path(__file__).parent / "qemu.sh"
# Of a virtio console: the first is set apart, and ours has two.
_MAX_PORTS = 4


def command_line(
    request: VmRequest,
    machine: Topology,
    accelerator: str,
    *,
    icount: bool,
    script: Path,
    ports: Mapping[str, int],
) -> list[str]:
    """Give the command that boots; its stdout is the guest's, stderr the serial."""
    virtme = paths.venv_bin() / "virtme-run"
    if not virtme.is_file():
        raise unsupported(
            "virtme-ng is not installed", hint="run ./pageferry from the checkout"
        )
    if not Path("/bin/busybox").exists():
        raise unsupported(
            "busybox is not installed", hint="apt-get install busybox-static"
        )
    argv = [str(virtme), "--kimg", str(request.image), "--mods", "none"]
    argv += [
        "--qemu-bin",
        str(_QEMU),
        "--force-9p",
        "--show-boot-console",
        "--script-sh",
        "true",
    ]
    # QEMU takes "-machine accel=", which virtme-ng would add, or "-accel",
    # which says more; not both.
    argv.append("--disable-kvm")
    for directory in request.rw:
        argv += ["--rwdir", str(directory.resolve())]
    for directory in _hidden_directories(request, script.parent):
        argv += ["--rodir", str(directory)]
    words = [*machine.kernel_words(icount=icount), *request.append]
    for word in _kernel_words(words, script):
        argv.append(f"--kopt={word}")
    qemu = accel.cpu_args(accelerator, icount=icount)
    qemu += machine.qemu_args(preallocate=request.preallocate)
    # A port for the command's stderr; virtme-ng's own ends up in our serial
    # log, where the kernel's messages are. And one for when it started and
    # how it ended: the console's last lines may be lost at power-off.
    # Each device has room for 31 unless told otherwise. QEMU would look at some
    # 450 queues, with virtme-ng's six, whenever it has anything to do.
    qemu += ["-global", f"virtio-serial-device.max_ports={_MAX_PORTS}"]
    qemu += ["-device", "virtio-serial-pci"]
    for name, number in ports.items():
        file = f"file,id=pf{name},path=/proc/self/fd/{number}"
        port = f"virtserialport,name=pageferry.{name},chardev=pf{name}"
        qemu += ["-chardev", file, "-device", port]
    return [*argv, "--qemu-opts", *qemu]


def environment(ports: Mapping[str, int]) -> dict[str, str]:
    """Give what qemu.sh needs to know."""
    return {
        "PAGEFERRY_QEMU": accel.find_qemu(),
        "PAGEFERRY_STATE": f"/proc/self/fd/{ports[guest.STATE_PORT]}",
    }


def _hidden_directories(request: VmRequest, scratch: Path) -> list[Path]:
    modules = [request.modules] if request.modules else []
    shown = [scratch, request.cwd, guest.INIT.parent, paths.repo_root(), *modules]
    found: list[Path] = []
    for directory in shown:
        real = directory.resolve()
        inside = any(d == real or d in real.parents for d in request.rw)
        if guest.is_hidden(real) and real not in found and not inside:
            found.append(real)
    return found


def _kernel_words(more: list[str], script: Path) -> list[str]:
    words = list(guest.KERNEL_WORDS)
    # The root is read-only for the guest, so what it has read once is good.
    words.append(
        "rootflags=version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"
    )
    # The kernel stops reading at "--", and so does not see the init that
    # virtme-ng names after it. The tab ends a word for the kernel, but not
    # for the option parser in between, which swallows a lone "--".
    return [*words, *more, f"pageferry_run={script}", f"init={guest.INIT}\t--"]
