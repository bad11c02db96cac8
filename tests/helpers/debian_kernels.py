# SPDX-License-Identifier: GPL-2.0-only
"""The stock kernels of Debian, downloaded and never installed."""

from __future__ import annotations

import subprocess
import tempfile
from pathlib import Path

from pageferry import paths
from pageferry.kernel.build import BuiltKernel
from pageferry.kernel.debian import Archive
from pageferry.vm import installed

_PACKAGE = "linux-image-amd64"
SUITES = {
    "debian-12": ("bookworm", "bookworm-security"),
    "debian-13": ("trixie", "trixie-security"),
}


def kernel(name: str) -> BuiltKernel:
    """Return the newest kernel of a release; a PageferryError says that it is missing."""
    archive = Archive(_PACKAGE, SUITES[name])
    (package,) = (one for one in archive.needed() if one.startswith("linux-image-"))
    release = package.removeprefix("linux-image-")
    home = paths.make_cache_dir("debian-kernels")
    root = home / package
    if not root.is_dir():
        with (
            tempfile.TemporaryDirectory(dir=home, prefix=".fetch-") as scratch,
            archive.package_file(package) as file,
        ):
            unpacked = Path(scratch) / "root"
            subprocess.run(["dpkg-deb", "-x", file, unpacked], check=True)
            if not (unpacked / "lib").exists():
                # Debian 13 has only the directory below /usr.
                (unpacked / "lib").symlink_to("usr/lib")
            subprocess.run(["/sbin/depmod", "-b", unpacked, release], check=True)
            unpacked.rename(root)
    image = root / "boot" / f"vmlinuz-{release}"
    return BuiltKernel(
        image=image,
        build_dir=root,
        modules=installed.modules_of(image),
        release=release,
        base=name,
        vanilla=True,
        configs=(),
        cached=True,
    )
