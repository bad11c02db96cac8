# SPDX-License-Identifier: GPL-2.0-only
"""Kernels of distributions: an initramfs loads their drivers, and mounts the root."""

from __future__ import annotations

import lzma
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError
from pageferry.vm import guest
from pageferry.vm.cpio import Archive

BUSYBOX = Path("/bin/busybox")
# For the host's root, our ports, and the layers over /tmp.
_DRIVERS = ("virtio_pci", "9pnet_virtio", "9p", "virtio_console", "overlay")
# The kernel passes words such as pageferry_run in the environment. With an initramfs, it
# does not mount /dev.
_FIRST_INIT = """#!/bin/busybox sh
for file in /modules/*; do /bin/busybox insmod $file; done
/bin/busybox mount -t 9p -o ro,{options} /dev/root /root
/bin/busybox mount -t devtmpfs dev /root/dev
exec /bin/busybox switch_root /root {init}
"""


def is_installed(image: Path) -> bool:
    """Say whether an image has the name of a distribution's: vmlinuz-RELEASE."""
    return image.name.startswith("vmlinuz-")


def modules_of(image: Path) -> Path:
    """Return the directory of the modules: ../lib/modules/RELEASE."""
    release = image.name.removeprefix("vmlinuz-")
    folder = image.parent.parent / "lib/modules" / release
    if not (folder / "modules.dep").is_file():
        raise PageferryError(
            "the modules of this kernel image were not found",
            value=folder / "modules.dep",
            hint=f"install the kernel's package, or depmod {release}",
            code=ExitCode.USAGE,
        )
    return folder


def initramfs(modules: Path, root_options: str) -> bytes:
    """Make the initramfs."""
    built_in = (modules / "modules.builtin").read_text()
    names = [name for name in _DRIVERS if f"/{name}.ko" not in built_in]
    packed = Archive()
    for folder in ("bin", "dev", "root", "modules"):
        packed.directory(folder)
    # The kernel opens /dev/console before it starts init.
    packed.character_device("dev/console", 5, 1)
    packed.file("bin/busybox", BUSYBOX.read_bytes(), 0o755)
    text = _FIRST_INIT.format(options=root_options, init=guest.INIT)
    packed.file("init", text.encode(), 0o755)
    # The shell sorts the files by name.
    for number, file in enumerate(guest.module_files(modules, names)):
        content = file.read_bytes()
        if file.suffix == ".xz":
            content = lzma.decompress(content)
        packed.file(f"modules/{number:02}.ko", content)
    return packed.bytes()
