# SPDX-License-Identifier: GPL-2.0-only
"""Machines of another architecture: the guest runs from an initramfs.

Such a guest cannot run the host's programs. The initramfs contains busybox, the
kernel's modules and the files of the request. Each file has its path on the host, so
that command lines are the same on both sides.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry.errors import usage_error
from pageferry.kernel.arch import Architecture
from pageferry.vm import busybox, guest
from pageferry.vm.cpio import Archive
from pageferry.vm.qemu import bare_machine
from pageferry.vm.topology import Topology

if TYPE_CHECKING:
    from pageferry.vm.run import VmRequest

_ELF = b"\x7fELF"
_INTERPRETER = 3  # PT_INTERP: the program needs a dynamic linker
_SHELL = (b"#!/bin/sh", b"#!/bin/busybox")
_SCRIPT = "/pageferry-run.sh"
_FIRST_INIT = f"""#!/bin/busybox sh
/bin/busybox mount -t devtmpfs dev /dev
/bin/busybox --install -s /bin
export pageferry_carried=1 pageferry_run={_SCRIPT}
exec /bin/busybox sh /guest-init.sh
"""


def program_obstacle(content: bytes, arch: Architecture) -> str | None:
    """Return the reason why a file cannot run in the guest; None if it can."""
    if content.startswith(_SHELL):
        return None
    if not content.startswith(_ELF) or len(content) < 64:
        return f"neither a program for {arch.name} nor a script for /bin/sh"
    if int.from_bytes(content[18:20], "little") != arch.machine:
        return f"not a program for {arch.name}"
    start, size = int.from_bytes(content[32:40], "little"), 56
    for index in range(int.from_bytes(content[56:58], "little")):
        kind = content[start + index * size :][:4]
        if int.from_bytes(kind, "little") == _INTERPRETER:
            return "not linked statically (-static)"
    return None


def check(request: VmRequest, machine: Topology) -> VmRequest:
    """Reject files that the guest cannot use; returns the request with CMD added."""
    arch = machine.architecture
    if request.rw:
        raise usage_error(
            "--rw: the guest sees no directory of the host",
            request.rw[0],
            f"it is {arch.name}: give it files with --carry",
        )
    for path in request.carry:
        if not path.is_file():
            raise usage_error("no such file to carry", path)
        if guest.is_hidden(path.absolute()):
            raise usage_error("the guest has a file system of its own there", path)
    name = request.command[0]
    carried = [path.name for path in request.carry if os.access(path, os.X_OK)]
    if "/" not in name:
        if name in busybox.applets(arch) or name in carried:
            return request
        found = shutil.which(name)
        reason = "not linked statically, or not found"
        if found is not None:
            reason = program_obstacle(Path(found).read_bytes(), arch) or reason
        raise _not_a_program(name, reason, arch, carried)
    path = request.cwd / name
    if not path.is_file():
        raise usage_error("no such program", name)
    obstacle = program_obstacle(path.read_bytes(), arch)
    if obstacle is not None:
        raise _not_a_program(name, obstacle, arch, carried)
    return replace(request, carry=(*request.carry, path.absolute()))


def _not_a_program(
    name: str, reason: str, arch: Architecture, carried: list[str]
) -> Exception:
    known = ", ".join(["busybox's (sh, cat, ...)", *sorted(carried)])
    return usage_error(
        f"{name} cannot run in the guest: {reason}",
        hint=f"use a static {arch.name} program, or one in the guest: {known}",
    )


def archive(request: VmRequest, machine: Topology, script: Path) -> bytes:
    """Make the initramfs."""
    packed = _Tree()
    for name in ("dev", "proc", "sys", "run", "tmp", "var/tmp", "root", "sbin"):
        packed.directory(Path("/", name))
    # The kernel opens /dev/console before it starts init.
    packed.archive.character_device("dev/console", 5, 1)
    packed.file(
        Path("/bin/busybox"), busybox.find(machine.architecture).read_bytes(), 0o755
    )
    packed.file(Path("/init"), _FIRST_INIT.encode(), 0o755)
    packed.file(Path("/guest-init.sh"), guest.INIT.read_bytes(), 0o755)
    packed.file(Path(_SCRIPT), script.read_bytes(), 0o755)
    packed.directory(request.cwd)
    if request.modules is not None:
        for path in sorted(request.modules.rglob("*")):
            if path.is_file():
                packed.file(path, path.read_bytes(), 0o644)
        # busybox's modprobe looks there, and has no option -d.
        packed.directory(Path("/lib/modules"))
        packed.archive.symbolic_link(
            f"lib/modules/{request.modules.name}", str(request.modules)
        )
    for path in dict.fromkeys(request.carry):
        packed.file(path, path.read_bytes(), path.stat().st_mode & 0o777)
    return packed.archive.bytes()


class _Tree:
    """An archive that adds the parent directories of each file."""

    def __init__(self) -> None:
        self.archive = Archive()
        self.known = {Path("/")}

    def directory(self, path: Path) -> None:
        if path not in self.known:
            self.directory(path.parent)
            self.archive.directory(str(path)[1:])
            self.known.add(path)

    def file(self, path: Path, content: bytes, mode: int) -> None:
        self.directory(path.parent)
        self.archive.file(str(path)[1:], content, mode)


def environment(request: VmRequest) -> dict[str, str]:
    """Return variables for the guest: PATH includes the carried programs."""
    places = [str(path.parent) for path in request.carry if os.access(path, os.X_OK)]
    return {"PATH": ":".join([*dict.fromkeys(places), "/bin", "/sbin"])}


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
    initrd = script.with_name("initramfs.cpio")
    initrd.write_bytes(archive(request, machine, script))
    arch = machine.architecture
    words = [f"console={arch.console}", "panic=-1", "rdinit=/init"]
    words += [*guest.KERNEL_WORDS, *machine.kernel_words(icount=icount)]
    named = {f"pageferry.{name}": number for name, number in ports.items()}
    argv = bare_machine(machine, accelerator, icount=icount)
    argv += machine.qemu_args(preallocate=request.preallocate)
    argv += ["-chardev", "file,id=console,path=/proc/self/fd/2"]
    argv += ["-serial", "chardev:console", "-device", "virtio-serial-device"]
    for name, number in {guest.STDOUT_PORT: 1, **named}.items():
        argv += ["-chardev", f"file,id=port{number},path=/proc/self/fd/{number}"]
        argv += ["-device", f"virtserialport,name={name},chardev=port{number}"]
    argv += ["-kernel", str(request.image), "-initrd", str(initrd)]
    return [*argv, "-append", " ".join([*words, *request.append])]
