# SPDX-License-Identifier: GPL-2.0-only
"""Packages in Debian's archive, downloaded and never installed.

apt does it, with lists and a configuration of its own, from the mirror that this
machine uses. apt also verifies the signatures.
"""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from pageferry import output, paths, proc
from pageferry.errors import PageferryError

_KEYS = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_APT = Path("/etc/apt")
_URI = re.compile(r"\b(?P<uri>https?://[^\s\]]+/(?P<kind>debian|debian-security))/?\s")


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


class Archive:
    """The present offers of a package in some suites."""

    def __init__(self, package: str, suites: Sequence[str]) -> None:
        self.package = package
        if shutil.which("apt-get") is None or not _KEYS.exists():
            raise self._failed("no apt, or no keys of Debian's archive")
        self.home = paths.make_cache_dir("debian-sources", package)
        self.options: list[str] = []
        self._configure(suites)
        said = self._apt("apt-get", "update")
        if not re.search(r"^(Hit|Get):", said.stdout, re.MULTILINE):
            words = (said.stderr.strip() or said.stdout.strip()).splitlines()
            raise self._failed(words[-1] if words else "apt-get update said nothing")

    def _failed(self, reason: str) -> PageferryError:
        what = "cannot download from Debian's archive"
        return PageferryError(what, value=self.package, reason=reason)

    def _configure(self, suites: Sequence[str]) -> None:
        for folder in ("state/lists/partial", "archives/partial"):
            (self.home / folder).mkdir(parents=True, exist_ok=True)
        places = mirrors()
        lines = []
        for suite in suites:
            uri = places["debian-security" if suite.endswith("-security") else "debian"]
            lines.append(f"deb [signed-by={_KEYS}] {uri} {suite} main\n")
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
        listed = self._apt("apt-cache", "madison", self.package).stdout.splitlines()
        return sorted({line.split("|")[1].strip() for line in listed})

    def needed(self) -> list[str]:
        """List the packages that the package depends on."""
        said = self._apt("apt-cache", "depends", self.package).stdout
        return re.findall(r"Depends: (\S+)", said)

    @contextmanager
    def package_file(self, name: str) -> Iterator[Path]:
        """Download a package, and remove it afterwards: NAME, or NAME=VERSION."""
        output.talk(f"downloading {name} from Debian")
        done = self._apt("apt-get", "download", name, cwd=self.home)
        packages = list(self.home.glob("*.deb"))
        try:
            if done.returncode != 0 or len(packages) != 1:
                raise self._failed(done.stderr.strip() or "apt-get downloaded nothing")
            yield packages[0]
        finally:
            for package in packages:
                package.unlink()

    def download(self, version: str, target: Path) -> None:
        """Write the tarball of a version of the package."""
        with self.package_file(f"{self.package}={version}") as package:
            self._take_tarball(package, target)

    def _take_tarball(self, package: Path, target: Path) -> None:
        scratch = target.with_suffix(".part")
        with scratch.open("wb") as out:
            unpack = subprocess.Popen(
                ["dpkg-deb", "--fsys-tarfile", package], stdout=subprocess.PIPE
            )
            tar = ["tar", "-xO", f"./usr/src/{self.package}.tar.xz"]
            done = subprocess.run(tar, stdin=unpack.stdout, stdout=out, check=False)
            if unpack.wait() != 0 or done.returncode != 0:
                raise self._failed(f"{package.name} has no tarball")
        scratch.replace(target)
