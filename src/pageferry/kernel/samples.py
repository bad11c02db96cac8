# SPDX-License-Identifier: GPL-2.0-only
"""A few files of a source, to check it before unpacking 1.5 GB."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from pageferry import paths
from pageferry.errors import ExitCode, from_os_error
from pageferry.kernel.hooks import Changes, wanted_files
from pageferry.kernel.source import Source, checked_version, extract_some
from pageferry.kernel.tree import locked

# The names of the requested files. Some do not exist, because hooks create them.
_NAMES = ".pageferry-names.json"
# Hashes of changes that are known to apply.
_APPLIES = ".pageferry-applies"


@dataclass(frozen=True)
class Sample:
    """A directory with a few files of a source, and its release."""

    path: Path
    version: str

    def check(self, changes: Changes) -> None:
        """Apply the hooks to the sample, unless they are known to apply."""
        memory = self.path / _APPLIES
        digest = changes.digest()
        known = memory.read_text().split() if memory.exists() else []
        if digest in known:
            return
        wanted_files(changes, self._pristine)
        with memory.open("a") as stream:
            stream.write(f"{digest}\n")

    def _pristine(self, name: str) -> Path | None:
        file = self.path / name
        return file if file.is_file() else None


def take_sample(source: Source, names: Iterable[str]) -> Sample:
    """Return a sample with these files, and keep it in the cache."""
    path = paths.cache_dir() / "kernel" / "samples" / source.identity[:16]
    wanted = {"Makefile", *names}
    try:
        if not wanted <= _looked_for(path):
            with locked(path):
                _fill(source, path, wanted | _looked_for(path))
    except OSError as error:
        what = "cannot look into the kernel source"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error
    return Sample(path, checked_version(source, path))


def _looked_for(path: Path) -> set[str]:
    try:
        return set(json.loads((path / _NAMES).read_text()))
    except (OSError, ValueError):
        return set()


def _fill(source: Source, path: Path, wanted: set[str]) -> None:
    path.mkdir(exist_ok=True)
    if source.is_directory:
        for name in wanted:
            if (source.path / name).is_file():
                (path / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(source.path / name, path / name)
    else:
        extract_some(source.path, path, sorted(wanted))
    # Write the names last, so that an interrupted sample is taken again.
    scratch = path / f"{_NAMES}.new"
    scratch.write_text(json.dumps(sorted(wanted)))
    scratch.replace(path / _NAMES)
