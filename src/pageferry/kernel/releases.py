# SPDX-License-Identifier: GPL-2.0-only
"""Point releases of a base: those that work, and their tarballs on kernel.org."""

from __future__ import annotations

import hashlib
import os
import tempfile
import tomllib
import urllib.error
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path

from pageferry import output
from pageferry.errors import ExitCode, PageferryError

_MIRROR = "https://cdn.kernel.org/pub/linux/kernel"
# A mirror needs no trust: the project's SHA-256 decides.
_MIRROR_VARIABLE = "PAGEFERRY_KERNEL_MIRROR"
_TIMEOUT_S = 20.0
_BLOCK = 1 << 20


@dataclass(frozen=True)
class Releases:
    """The content of linux/hooks/BASE/releases.toml."""

    works: tuple[str, ...] = ()
    sha256: dict[str, str] = field(default_factory=dict)

    def to_download(self) -> str | None:
        """Return the newest release with a known SHA-256."""
        return max(self.sha256, key=point, default=None)

    def list(self) -> str:
        """Format the releases that work."""
        return ", ".join(sorted(self.works, key=point)) or "none"


NONE = Releases()


def point(release: str) -> int:
    """Return N of 6.12.N; 0 for the base release itself."""
    parts = release.split(".")
    return int(parts[2]) if len(parts) > 2 else 0


def read_releases(linux: Path, base: str) -> Releases:
    """Read the list of a base; empty if the file does not exist."""
    path = linux / "hooks" / base / "releases.toml"
    try:
        table = tomllib.loads(path.read_text())
        return Releases(tuple(table["works"]), dict(table["sha256"]))
    except FileNotFoundError:
        return NONE
    except (ValueError, KeyError, TypeError) as error:
        raise PageferryError(
            "the list of releases is damaged",
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
        os.link(file.name, target)


def _not_there(url: str, reason: str) -> PageferryError:
    return PageferryError(
        "cannot download the kernel source",
        value=url,
        reason=reason,
        code=ExitCode.NOT_STARTED,
    )
