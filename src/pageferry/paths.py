# SPDX-License-Identifier: GPL-2.0-only
"""Paths of our own files, of the cache, and of the programs in the venv."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pageferry.errors import ExitCode, PageferryError


def repo_root() -> Path:
    """Find linux/ and bench/: in the checkout, or where a package installs them."""
    override = os.environ.get("PAGEFERRY_ROOT")
    here = Path(__file__).resolve()
    # This file is src/pageferry/paths.py in a checkout. A package has it in
    # lib/python3/dist-packages/pageferry, beside share/pageferry.
    places = [here.parents[2], *(up / "share/pageferry" for up in here.parents[4:5])]
    if override:
        places = [Path(override)]
    for root in places:
        if (root / "linux" / "configs").is_dir():
            return root
    raise PageferryError(
        "the files of pageferry with linux/ and bench/ were not found",
        value=places[0],
        hint="run ./pageferry in a checkout, or set PAGEFERRY_ROOT to one",
        code=ExitCode.UNSUPPORTED,
    )


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
