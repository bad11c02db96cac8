# SPDX-License-Identifier: GPL-2.0-only
"""A shell for guests of another architecture: Debian's static busybox.

apt downloads and verifies the package with package lists of its own in a scratch
directory. The download needs no root, and leaves dpkg's architectures alone. The cache
keeps the program.
"""

from __future__ import annotations

import re
import tempfile
from functools import cache
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.arch import Architecture

_PACKAGE = "busybox-static"


def find(arch: Architecture) -> Path:
    """Return the program, and download it first if needed."""
    place = paths.make_cache_dir("guest", arch.name)
    ready = place / "busybox"
    if not ready.is_file():
        for tool, package in (("apt-get", "apt"), ("dpkg-deb", "dpkg")):
            proc.find_tool(tool, package)
        output.talk(f"fetching {_PACKAGE} for {arch.name}")
        with tempfile.TemporaryDirectory(dir=place, prefix=".fetch-") as name:
            _fetch(arch, Path(name)).replace(ready)
    return ready


def _fetch(arch: Architecture, scratch: Path) -> Path:
    for name in ("lists/partial", "cache/archives/partial", "root"):
        (scratch / name).mkdir(parents=True)
    # Acquire::Languages=none skips translations.
    settings = {
        "Dir::State::Lists": scratch / "lists",
        "Dir::Cache": scratch / "cache",
        "APT::Architecture": arch.name,
        "APT::Architectures": arch.name,
        "APT::Sandbox::User": "",
        "Acquire::Languages": "none",
    }
    apt = ["apt-get", "-q", *(f"-o{key}={value}" for key, value in settings.items())]
    # `update` fails if one of the archives lacks this architecture. Go on then.
    said = proc.capture([*apt, "update"]).stderr
    got = proc.capture([*apt, "download", f"{_PACKAGE}:{arch.name}"], cwd=scratch)
    packages = list(scratch.glob("*.deb"))
    if got.returncode or len(packages) != 1:
        raise _failed(arch, said + got.stderr, " ".join([*apt, "update"]))
    done = proc.capture(["dpkg-deb", "-x", packages[0], scratch / "root"])
    # The program is in /bin or /usr/bin.
    found = [p for p in (scratch / "root").rglob("busybox") if p.parent.name == "bin"]
    if done.returncode or len(found) != 1:
        raise _failed(arch, done.stderr, f"dpkg-deb -x {packages[0].name}")
    return found[0]


def _failed(arch: Architecture, said: str, command: str) -> PageferryError:
    return PageferryError(
        f"cannot fetch Debian's {_PACKAGE} for {arch.name}",
        value=command,
        detail=said.strip(),
        hint="check the network and apt's sources, then run it again, or put a "
        f"static busybox in {paths.cache_dir() / 'guest' / arch.name}",
        code=ExitCode.NOT_STARTED,
    )


@cache
def applets(arch: Architecture) -> frozenset[str]:
    """List busybox's applets, from the table of names in its binary."""
    content = find(arch).read_bytes()
    table = re.search(rb"(\[\0\[\[\0(?:[\w.+-]+\0)+)", content)
    names = table[1].split(b"\0") if table is not None else []
    return frozenset(name.decode() for name in names if name)
