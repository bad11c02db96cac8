# SPDX-License-Identifier: GPL-2.0-only
"""The bases, their point releases, and the tarballs of these on kernel.org."""

from __future__ import annotations

import hashlib
import os
import tempfile
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass
from pathlib import Path

from pageferry import output
from pageferry.errors import ExitCode, PageferryError, usage_error

# The base of commands without --base. The variable lets `make test` use another one.
DEFAULT = os.environ.get("PAGEFERRY_BASE") or "6.12"
# Debian's packages put their tarballs there.
DEBIAN_SOURCES = Path("/usr/src")
_FILE = "base.toml"
_MIRROR = "https://cdn.kernel.org/pub/linux/kernel"
# A mirror needs no trust: the project's SHA-256 decides.
_MIRROR_VARIABLE = "PAGEFERRY_KERNEL_MIRROR"
_TIMEOUT_S = 20.0
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Base:
    """A base that linux/hooks has patches for: the content of its base.toml.

    package: Debian's package of the source, and `suites` that offer it
    oldest:  the first release that the hooks support
    works:   releases whose kernel has booted
    sha256:  of tarballs on kernel.org
    has:     hooks of other bases that this one does not need, each with its reason
    """

    name: str
    package: str
    suites: tuple[str, ...]
    oldest: str
    works: tuple[str, ...]
    sha256: dict[str, str]
    has: dict[str, str]

    @property
    def installed(self) -> Path:
        """Return the path of the tarball in Debian's package."""
        return DEBIAN_SOURCES / f"{self.package}.tar.xz"

    def to_download(self) -> str | None:
        """Return the newest release with a known SHA-256."""
        return max(self.sha256, key=point, default=None)

    def known(self) -> str:
        """Format the releases that work."""
        return ", ".join(sorted(self.works, key=point)) or "none"


def point(release: str) -> int:
    """Return N of 6.12.N; 0 for the base release itself."""
    parts = release.split(".")
    return int(parts[2]) if len(parts) > 2 else 0


def names(linux: Path) -> list[str]:
    """List the bases, the oldest first."""
    found = [path.parent.name for path in linux.glob(f"hooks/*/{_FILE}")]
    return sorted(found, key=lambda name: [int(part) for part in name.split(".")])


def read(linux: Path, name: str) -> Base:
    """Read the description of a base."""
    known = names(linux)
    if name not in known:
        raise usage_error("unknown base", name, f"there is: {', '.join(known)}")
    path = linux / "hooks" / name / _FILE
    try:
        table = tomllib.loads(path.read_text())
        return Base(
            name=name,
            package=str(table["package"]),
            suites=tuple(table["suites"]),
            oldest=str(table["oldest"]),
            works=tuple(table["works"]),
            sha256=dict(table["sha256"]),
            has=dict(table["has"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise PageferryError(
            "the description of a base is damaged",
            value=path,
            reason=str(error),
            code=ExitCode.NOT_STARTED,
        ) from error


def tarball_url(release: str) -> str:
    """Return the URL of a release's tarball."""
    mirror = os.environ.get(_MIRROR_VARIABLE) or _MIRROR
    major = release.split(".")[0]
    return f"{mirror.rstrip('/')}/v{major}.x/linux-{release}.tar.xz"


def download(release: str, sha256: str, target: Path) -> None:
    """Download a tarball; `target` exists only with the right content."""
    url = tarball_url(release)
    output.talk(f"downloading {url} (150 MB)")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(dir=target.parent, prefix=".download-") as file:
        digest = hashlib.sha256()
        try:
            with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as stream:
                while block := stream.read(_BLOCK):
                    digest.update(block)
                    file.write(block)
        except (urllib.error.URLError, TimeoutError, ConnectionError) as error:
            reason = getattr(error, "reason", None) or error
            raise _not_there(url, f"no connection: {reason}") from error
        if digest.hexdigest() != sha256:
            raise _not_there(
                url, f"its SHA-256 is {digest.hexdigest()}, and has to be {sha256}"
            )
        file.flush()
        # The hooks did not apply to an existing one, or it is damaged.
        target.unlink(missing_ok=True)
        os.link(file.name, target)


def _not_there(url: str, reason: str) -> PageferryError:
    return PageferryError(
        "cannot download the kernel source",
        value=url,
        reason=reason,
        code=ExitCode.NOT_STARTED,
    )
