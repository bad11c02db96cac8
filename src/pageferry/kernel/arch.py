# SPDX-License-Identifier: GPL-2.0-only
"""The architectures that the tool can build for, and their names elsewhere."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pageferry.errors import usage_error


@dataclass(frozen=True)
class Architecture:
    """The properties of an architecture.

    name:      its name in options, and the directory below linux/configs whose
               fragments replace those of the same name
    make:      its name in kbuild (ARCH=)
    cross:     the prefix of its compiler and linker (CROSS_COMPILE=)
    image:     the path of the boot image in a build directory; its last part is the
               make target
    libc:      the Debian package with its C library
    machine:   e_machine in the header of its programs
    qemu:      the emulator; qemu_package is its Debian package
    console:   the kernel's serial console
    """

    name: str
    make: str
    cross: str
    image: str
    libc: str
    machine: int
    qemu: str
    qemu_package: str
    console: str

    @property
    def target(self) -> str:
        """Return the make target of the image."""
        return Path(self.image).name

    @property
    def compilers(self) -> tuple[tuple[str, str], ...]:
        """List compiler and linker, each with its Debian package."""
        if not self.cross:
            return (("gcc", "build-essential"), ("ld", "build-essential"))
        triplet = self.cross.removesuffix("-")
        return (
            (f"{self.cross}gcc", f"gcc-{triplet}"),
            (f"{self.cross}ld", f"binutils-{triplet}"),
        )


X86_64 = Architecture(
    name="x86_64",
    make="x86_64",
    cross="",
    image="arch/x86/boot/bzImage",
    libc="libc6-dev",
    machine=62,
    qemu="qemu-system-x86_64",
    qemu_package="qemu-system-x86",
    console="ttyS0",
)
ARM64 = Architecture(
    name="arm64",
    make="arm64",
    cross="aarch64-linux-gnu-",
    image="arch/arm64/boot/Image",
    libc="libc6-dev-arm64-cross",
    machine=183,
    qemu="qemu-system-aarch64",
    qemu_package="qemu-system-arm",
    console="ttyAMA0",
)
_ALL = {arch.name: arch for arch in (X86_64, ARM64)}
NAMES = tuple(_ALL)


def find(name: str) -> Architecture:
    """Return the architecture with this name."""
    if name not in _ALL:
        raise usage_error("unknown architecture", name, f"there is: {', '.join(_ALL)}")
    return _ALL[name]
