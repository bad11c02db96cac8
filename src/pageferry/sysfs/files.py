# SPDX-License-Identifier: GPL-2.0-only
"""Read and write files of the kernel.

Another root directory lets tests use a captured tree. A dry run logs writes and
does not make them.
"""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass, field
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError

_LAST_WRITES = 1000
_ROOT_VARIABLE = "PAGEFERRY_SYSFS_ROOT"


def default_root() -> Path:
    """Return the root directory; tests set it with a variable."""
    return Path(os.environ.get(_ROOT_VARIABLE, "/"))


@dataclass
class Files:
    """The kernel's files below a root directory."""

    root: Path = field(default_factory=default_root)
    dry_run: bool = False
    writes: list[tuple[Path, str]] = field(default_factory=list)

    def path(self, name: str) -> Path:
        """Turn an absolute name into a path below the root."""
        return self.root / name.lstrip("/")

    def exists(self, name: str) -> bool:
        """Say whether a file or directory exists."""
        return self.path(name).exists()

    def names(self, name: str) -> list[str]:
        """List a directory; empty if it does not exist."""
        try:
            return sorted(entry.name for entry in self.path(name).iterdir())
        except OSError:
            return []

    def read(self, name: str) -> str:
        """Read a file, without the newline at its end."""
        try:
            return self._text(name)
        except OSError as error:
            raise _failed("cannot read", self.path(name), error) from error

    def read_or(self, name: str, default: str) -> str:
        """Read a file that may be missing."""
        try:
            return self._text(name)
        except OSError:
            return default

    def read_if_there(self, name: str) -> str:
        """Read a file; empty only if the file, or the process that it is about, is gone."""
        try:
            return self._text(name)
        except (FileNotFoundError, ProcessLookupError):
            return ""
        except OSError as error:
            # A file of sysfs may go after it was opened.
            if error.errno == errno.ENODEV:
                return ""
            raise _failed("cannot read", self.path(name), error) from error

    def link(self, name: str) -> str:
        """Return the last part of a link's target; empty if there is no link."""
        try:
            return self.path(name).readlink().name
        except OSError:
            return ""

    def _text(self, name: str) -> str:
        """Read a file whose names, such as those of mapped files, may not be UTF-8."""
        data = self.path(name).read_bytes()
        return data.decode(errors="surrogateescape").rstrip("\n")

    def write(self, name: str, value: str) -> None:
        """Write a value; a dry run only logs it."""
        path = self.path(name)
        self.writes.append((path, value))
        if self.dry_run:
            return
        # A service writes for months.
        del self.writes[:-_LAST_WRITES]
        try:
            # The kernel takes each write(2) as one command. Without O_CREAT, a
            # missing file is an error: this kernel lacks the feature.
            handle = os.open(path, os.O_WRONLY | os.O_TRUNC)
            try:
                os.write(handle, f"{value}\n".encode())
            finally:
                os.close(handle)
        except OSError as error:
            raise _failed(f"cannot write {value!r} to", path, error) from error


_HINTS = {
    errno.EACCES: "run it as root",
    errno.EPERM: "run it as root",
    errno.EROFS: "this /sys is read-only: run it outside the container",
    errno.EBUSY: "another driver has made itself the active engine: unload it",
    errno.EINVAL: "pageferry engine list",
    errno.ENOENT: "pageferry doctor",
}


def _failed(what: str, path: Path, error: OSError) -> PageferryError:
    missing = error.errno == errno.ENOENT
    return PageferryError(
        what,
        value=path,
        reason=error.strerror,
        hint=_HINTS.get(error.errno or 0),
        code=ExitCode.UNSUPPORTED if missing else ExitCode.FAILED,
    )
