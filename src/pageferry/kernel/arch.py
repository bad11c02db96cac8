# SPDX-License-Identifier: GPL-2.0-only
"""Architectures that a kernel can be built for, and what each is called where."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pageferry.errors import usage_error


@dataclass(frozen=True)
class Architecture:
    """What differs between two kernels because of their processor.

    name:      what people call it, and the directory below linux/configs whose
               fragments replace those of the same name
    make:      what kbuild calls it (ARCH=)
    cross:     what the names of its compiler and linker begin with
    image:     where kbuild leaves what boots, and the target that makes it
    libc:      the Debian package with its C library
    machine:   e_machine in the header of its programs
    qemu:      the emulator, and the Debian package that has it
    console:   the serial line that kernels write to
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
        """Name the target that makes the image."""
        return Path(self.image).name

    @property
    def compilers(self) -> tuple[tuple[str, str], ...]:
        """List compiler and linker, each with the Debian package that has it."""
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
    """Look one up by its name."""
    if name not in _ALL:
        raise usage_error("unknown architecture", name, f"there is: {', '.join(_ALL)}")
    return _ALL[name]
