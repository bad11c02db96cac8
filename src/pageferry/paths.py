# SPDX-License-Identifier: GPL-2.0-only
"""Paths of the checkout, of the cache, and of the programs in the venv."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError


def repo_root() -> Path:
    """Find the checkout that holds linux/ and bench/."""
    override = os.environ.get("PAGEFERRY_ROOT")
    root = Path(override) if override else Path(__file__).resolve().parents[2]
    if not (root / "linux" / "configs").is_dir():
        raise PageferryError(
            "the checkout with linux/ and bench/ was not found",
            value=root,
            hint="run ./pageferry in it, or set PAGEFERRY_ROOT to it",
            code=ExitCode.UNSUPPORTED,
        )
    return root


def cache_dir() -> Path:
    """Return the cache directory: everything in it can be made again."""
    # The XDG specification requires an absolute path.
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "pageferry"


def make_cache_dir(*parts: str) -> Path:
    """Make a directory below the cache directory."""
    path = cache_dir().joinpath(*parts)
    path.mkdir(parents=True, exist_ok=True)
    return path


def venv_bin() -> Path:
    """Return the directory of this interpreter's programs."""
    return Path(sys.prefix) / "bin"


def venv_path() -> str:
    """Return a PATH on which this interpreter's programs come first."""
    # A user's PATH often lacks the sbin directories, which contain modprobe.
    rest = os.environ.get("PATH", os.defpath).split(os.pathsep)
    sbin = [p for p in ("/usr/sbin", "/sbin") if p not in rest]
    return os.pathsep.join([str(venv_bin()), *rest, *sbin])
