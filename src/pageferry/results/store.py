# SPDX-License-Identifier: GPL-2.0-only
"""Where results are kept: the XDG state directory, or a file of one's choice."""

from __future__ import annotations

import contextlib
import os
import tempfile
from datetime import UTC, datetime
from pathlib import Path

from pageferry.errors import ExitCode, from_os_error
from pageferry.results.schema import Result, encode


def results_dir() -> Path:
    """Name the directory of all results that went nowhere else."""
    base = os.environ.get("XDG_STATE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".local" / "state"
    return root / "pageferry" / "results"


def now() -> str:
    """Give the time of a result: UTC, to the second."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def default_path(bench: str, created: str) -> Path:
    """Name a new file: two runs in the same second do not meet."""
    stamp = created.replace("-", "").replace(":", "")
    path = results_dir() / f"{stamp}-{bench}.json"
    number = 2
    while path.exists():
        path = results_dir() / f"{stamp}-{bench}-{number}.json"
        number += 1
    return path


def save(result: Result, path: Path) -> Path:
    """Write a result as a whole or not at all."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        temporary = Path(name)
        try:
            with os.fdopen(handle, "w", encoding="utf-8") as stream:
                stream.write(encode(result))
            temporary.chmod(0o644)
            temporary.replace(path)
        except BaseException:
            with contextlib.suppress(OSError):
                temporary.unlink()
            raise
    except OSError as error:
        raise from_os_error(
            error, "cannot write the result", ExitCode.FAILED
        ) from error
    return path
