# SPDX-License-Identifier: GPL-2.0-only
"""The kernel sources that Debian offers, downloaded and never installed.

apt does it, with lists and a configuration of its own, from the mirror that this
machine uses. Tarballs stay in the cache for as long as Debian offers them.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

from pageferry import paths, proc

_PACKAGE = "linux-source-6.12"
_SUITES = ("bookworm", "trixie")
_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT = Path("/etc/apt")
_URI = re.compile(r"\b(?P<uri>https?://[^\s\]]+/(?P<kind>debian|debian-security))/?\s")


class CannotAskError(Exception):
    """Debian cannot be reached; the message gives the reason."""


def mirrors(etc: Path = _APT) -> dict[str, str]:
    """Find the mirrors that this machine uses: debian and debian-security."""
    found = {
        kind: f"http://deb.debian.org/{kind}" for kind in ("debian", "debian-security")
    }
    files = [etc / "sources.list", *sorted((etc / "sources.list.d").glob("*"))]
    # As in apt, the first mirror counts.
    for file in reversed([file for file in files if file.is_file()]):
        for match in reversed([*_URI.finditer(file.read_text() + "\n")]):
            found[match["kind"]] = match["uri"]
    return found


class Debian:
    """The present offers of Debian 12 and 13: main, updates, backports and security."""

    def __init__(self) -> None:
        if shutil.which("apt-get") is None or not _KEYS.exists():
            raise CannotAskError("no apt, or no keys of Debian's archive")
        self.home = paths.make_cache_dir("debian-sources")
        self.options: list[str] = []
        self._configure()
        said = self._apt("apt-get", "update")
        if not re.search(r"^(Hit|Get):", said.stdout, re.MULTILINE):
            words = (said.stderr.strip() or said.stdout.strip()).splitlines()
            raise CannotAskError(words[-1] if words else "apt-get update said nothing")

    def _configure(self) -> None:
        for folder in ("state/lists/partial", "archives/partial", "tarballs"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        base = mirrors()
        lines = []
        for suite in _SUITES:
            places = [(base["debian"], suite + part) for part in _PARTS]
            places.append((base["debian-security"], f"{suite}-security"))
            lines += [f"deb [signed-by={_KEYS}] {uri} {s} main\n" for uri, s in places]
        (self.home / "sources.list").write_text("".join(lines))
        settings = {
            "Dir::State": self.home / "state",
            "Dir::State::status": "/dev/null",
            "Dir::Cache": self.home,
            "Dir::Etc::sourcelist": self.home / "sources.list",
            "Dir::Etc::sourceparts": "-",
            "APT::Architecture": "amd64",
            "APT::Sandbox::User": "root",
            "Acquire::Languages": "none",
            "Acquire::http::Timeout": "20",
            "Acquire::Retries": "1",
        }
        for name, value in settings.items():
            self.options += ["-o", f"{name}={value}"]

    def _apt(
        self, tool: str, *words: str, cwd: Path | None = None
    ) -> subprocess.CompletedProcess[str]:
        return proc.capture([tool, *self.options, *words], cwd=cwd)

    def offered(self) -> list[str]:
        """List the versions of the package."""
        listed = self._apt("apt-cache", "madison", _PACKAGE).stdout.splitlines()
        return sorted({line.split("|")[1].strip() for line in listed})

    def tarball(self, version: str) -> Path:
        """Return the tarball of a version of the package."""
        target = self.home / "tarballs" / f"{version}.tar.xz"
        if target.exists():
            return target
        done = self._apt("apt-get", "download", f"{_PACKAGE}={version}", cwd=self.home)
        packages = list(self.home.glob("*.deb"))
        try:
            assert done.returncode == 0 and len(packages) == 1, done.stderr
            _take_tarball(packages[0], target)
        finally:
            for package in packages:
                package.unlink()
        return target

    def forget_others(self, versions: list[str]) -> None:
        """Remove tarballs that Debian no longer offers."""
        for path in (self.home / "tarballs").iterdir():
            if path.name.removesuffix(".tar.xz") not in versions:
                path.unlink()


# Suffixes of a suite's name.
_PARTS = ("", "-updates", "-backports")


def _take_tarball(package: Path, target: Path) -> None:
    scratch = target.with_suffix(".part")
    member = f"./usr/src/{_PACKAGE}.tar.xz"
    with scratch.open("wb") as out:
        unpack = subprocess.Popen(
            ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
        )
        tar = ["tar", "-xO", member]
        done = subprocess.run(tar, stdin=unpack.stdout, stdout=out, check=False)
        assert unpack.wait() == 0 and done.returncode == 0, package
    scratch.replace(target)
