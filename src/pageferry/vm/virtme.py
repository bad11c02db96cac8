# SPDX-License-Identifier: GPL-2.0-only
"""Machines that mount the host's root over 9P, started with virtme-run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import paths
from pageferry.errors import unsupported
from pageferry.vm import accel, guest, installed
from pageferry.vm.topology import Topology

if TYPE_CHECKING:
    from pageferry.vm.run import VmRequest

# Reports how QEMU ended; virtme-run does not.
_QEMU = Path(__file__).parent / "qemu.sh"
# The guest's root is read-only, so the guest may cache it.
_ROOT = "version=9p2000.L,trans=virtio,access=any,msize=524288,cache=loose"
# Ports of a virtio console. The first is reserved, and ours uses two more.
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
    """Return the boot command; its stdout is the guest's, its stderr the serial line."""
    virtme = paths.venv_bin() / "virtme-run"
    if not virtme.is_file():
        raise unsupported(
            "virtme-ng is not installed",
            hint="apt-get install virtme-ng, or run ./pageferry from a checkout",
        )
    if not installed.BUSYBOX.exists():
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
    # QEMU accepts "-machine accel=" or "-accel", not both. virtme-ng would add the
    # first; we need the second.
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
    # One port carries the command's stderr: virtme-ng would mix it into our serial
    # log. The other carries the start and the exit code, because the console may lose
    # its last lines at power-off.
    # max_ports is 31 by default. With virtme-ng's six devices QEMU would check some
    # 450 queues at each event.
    qemu += ["-global", f"virtio-serial-device.max_ports={_MAX_PORTS}"]
    qemu += ["-device", "virtio-serial-pci"]
    for name, number in ports.items():
        file = f"file,id=pf{name},path=/proc/self/fd/{number}"
        port = f"virtserialport,name=pageferry.{name},chardev=pf{name}"
        qemu += ["-chardev", file, "-device", port]
    if installed.is_installed(request.image) and request.modules is not None:
        initrd = script.with_name("initramfs.cpio")
        initrd.write_bytes(installed.initramfs(request.modules, _ROOT))
        qemu += ["-initrd", str(initrd)]
    return [*argv, "--qemu-opts", *qemu]


def environment(ports: Mapping[str, int]) -> dict[str, str]:
    """Return the variables of qemu.sh."""
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
    words.append(f"rootflags={_ROOT}")
    # The kernel stops parsing at "--", and so ignores the init= that virtme-ng adds
    # after it. The tab separates words for the kernel, but not for virtme-ng's
    # option parser, which would drop a separate "--".
    return [*words, *more, f"pageferry_run={script}", f"init={guest.INIT}\t--"]
