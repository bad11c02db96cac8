# SPDX-License-Identifier: GPL-2.0-only
"""A kernel source, its identity, and how to unpack it."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry import paths, proc
from pageferry.errors import ExitCode, PageferryError, from_os_error, usage_error

# Files of a build or a version control system in a source directory.
_NOT_SOURCE = shutil.ignore_patterns(".git", "*.o", "*.ko", "*.cmd", "*.a")


@dataclass(frozen=True)
class Source:
    """A tarball or a directory with a kernel, and a hash of its content."""

    base: str
    path: Path
    identity: str

    @property
    def is_directory(self) -> bool:
        """Say whether this is an unpacked tree."""
        return self.path.is_dir()


def locate(base: str, path: Path) -> Source:
    """Return the source at a path, with its identity."""
    path = path.expanduser().resolve()
    if not path.exists():
        raise usage_error("no such source", path, "--source takes a tarball or a tree")
    try:
        if path.is_dir():
            identity = _directory_identity(path)
        else:
            identity = _tarball_identity(path)
    except OSError as error:
        raise from_os_error(
            error, "cannot read the kernel source", ExitCode.NOT_STARTED
        ) from error
    return Source(base, path, identity)


def _directory_identity(path: Path) -> str:
    """Hash names, sizes and times, because hashing 1.5 GB would take too long."""
    digest = hashlib.sha256(str(path).encode())
    for parent, directories, names in os.walk(path):
        directories[:] = sorted(d for d in directories if d != ".git")
        for name in sorted(names):
            status = os.lstat(os.path.join(parent, name))  # noqa: PTH118
            entry = f"{parent}\0{name}\0{status.st_size}\0{status.st_mtime_ns}\n"
            digest.update(entry.encode(errors="surrogateescape"))
    return digest.hexdigest()


def _tarball_identity(path: Path) -> str:
    """Hash the content, and cache the hash until the file changes."""
    status = path.stat()
    touched = f"{path}:{status.st_size}:{status.st_mtime_ns}:{status.st_ino}"
    memory = paths.cache_dir() / "kernel" / "tarballs.json"
    known: dict[str, str] = {}
    try:
        known = json.loads(memory.read_text())
        if isinstance(known[touched], str):
            return known[touched]
    except (OSError, ValueError, KeyError, TypeError):
        known = {}
    with path.open("rb") as stream:
        identity = hashlib.file_digest(stream, "sha256").hexdigest()
    try:
        memory.parent.mkdir(parents=True, exist_ok=True)
        scratch = memory.with_suffix(f".{os.getpid()}")
        scratch.write_text(json.dumps({**known, touched: identity}, indent=1))
        scratch.replace(memory)
    except OSError:
        pass  # Without the cache the next call takes half a second longer.
    return identity


def unpack(source: Source, target: Path) -> None:
    """Fill an empty directory with the source."""
    if source.is_directory:
        _copy_tree(source.path, target)
    else:
        _extract(source.path, target)
    checked_version(source, target)


def checked_version(source: Source, tree: Path) -> str:
    """Read the version of an unpacked source; it must belong to the base."""
    found = read_version(tree)
    if found is None or not found.startswith(f"{source.base}."):
        foreign = found is not None
        raise PageferryError(
            "this is not the source of Linux " + source.base,
            value=source.path,
            reason=f"it is {found}" if foreign else "it has no Makefile of a kernel",
            hint="choose its base with --base (pageferry kernel bases)"
            if foreign
            else None,
            code=ExitCode.NOT_STARTED,
        )
    return found


def _copy_tree(path: Path, target: Path) -> None:
    if not (path / "Makefile").is_file():
        raise usage_error("not a kernel source tree", path, "it has no Makefile")
    shutil.copytree(path, target, symlinks=True, dirs_exist_ok=True, ignore=_NOT_SOURCE)
    if (target / ".config").exists() or (target / "include/config").exists():
        # kbuild refuses an output directory for a tree with an in-tree build.
        cleaned = proc.capture(["make", "-C", target, "mrproper"])
        if cleaned.returncode != 0:
            raise PageferryError(
                "cannot clean the copy of a source tree",
                value=path,
                detail=cleaned.stderr,
                code=ExitCode.NOT_STARTED,
            )


def extract_some(path: Path, target: Path, names: Sequence[str]) -> None:
    """Extract a few files of a tarball; missing ones are no error."""
    patterns = [f"*/{name}" for name in names]
    options = ["--wildcards", "--no-wildcards-match-slash"]
    _extract(path, target, *options, *patterns)


# tar's messages if its only problem is that some files are missing.
_NOT_FOUND = ("Not found in archive", "Exiting with failure status due to previous")


def _extract(path: Path, target: Path, *options: str) -> None:
    tar = proc.find_tool("tar", "tar")
    argv: list[str | Path] = [tar, "-x", "-f", path, "-C", target]
    argv += ["--strip-components=1", "--no-same-owner", "--delay-directory-restore"]
    with proc.group([*argv, *options], env={**os.environ, "LC_ALL": "C"}) as process:
        assert process.stdout is not None
        said = process.stdout.read().decode(errors="replace").strip()
        code = process.wait()
    lines = said.splitlines()
    absent = all(any(sign in line for sign in _NOT_FOUND) for line in lines)
    if code == 0 or (options and lines and absent):
        return
    # On a full disk tar may print "Wrote only 6144 of 10240 bytes".
    full = any(sign in said for sign in ("No space left", "Disk quota", "Wrote only"))
    raise PageferryError(
        "no space to unpack the kernel source" if full else "cannot unpack",
        value=target.parent if full else path,
        reason=None if full else (lines or ["tar failed"])[0],
        hint="free 2 GiB there, or set XDG_CACHE_HOME to a larger disk"
        if full
        else "the file is damaged or not a tarball: install it again",
        code=ExitCode.NOT_STARTED,
    )


def read_version(tree: Path) -> str | None:
    """Read VERSION.PATCHLEVEL.SUBLEVEL from a kernel's Makefile."""
    try:
        head = (tree / "Makefile").read_text(errors="replace")[:2000]
    except OSError:
        return None
    parts = []
    for name in ("VERSION", "PATCHLEVEL", "SUBLEVEL"):
        match = re.search(rf"^{name} = (\d+)$", head, re.MULTILINE)
        if match is None:
            return None
        parts.append(match[1])
    return ".".join(parts)
