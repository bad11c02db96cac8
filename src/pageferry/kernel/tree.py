# SPDX-License-Identifier: GPL-2.0-only
"""Source trees in the cache: unpacked once, then updated file by file.

The tool changes only trees with its marker file. It writes only files whose content
differs, so that other files keep their times and make stays incremental.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

from pageferry import output, paths
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.kernel.hooks import Changes, WantedFile, wanted_files
from pageferry.kernel.source import Source, read_version, unpack

_MARKER = ".pageferry-tree.json"
_ADDED = ".pageferry-added.json"
_PRISTINE = ".pageferry-pristine"
_FORMAT = 1


@dataclass(frozen=True)
class Tree:
    """A source tree that this project made."""

    path: Path
    version: str


def tree_path(source: Source, vanilla: bool) -> Path:
    """Return the path of the tree of a source, patched or vanilla."""
    flavour = "vanilla" if vanilla else "patched"
    name = f"{source.base}-{source.identity[:10]}-{flavour}"
    return paths.cache_dir() / "kernel" / name


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold the lock of a tree; yields its descriptor, which children may inherit."""
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = os.open(f"{path}.lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            output.talk(f"waiting for another build in {path}")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield lock
    finally:
        os.close(lock)


def prepare(source: Source, vanilla: bool) -> Tree:
    """Return the tree of a source, and unpack it first if needed."""
    return prepare_at(source, tree_path(source, vanilla))


def prepare_at(source: Source, path: Path) -> Tree:
    """Return a tree at another path, and unpack it first if needed."""
    if not path.exists():
        _unpack_whole(source, path)
    marker = _read_marker(path)
    if marker.get("identity") != source.identity:
        raise _foreign(path)
    version = read_version(path)
    if version is None:
        raise _foreign(path)
    return Tree(path, version)


def _read_marker(path: Path) -> dict[str, object]:
    try:
        marker = json.loads((path / _MARKER).read_text())
    except (OSError, ValueError):
        raise _foreign(path) from None
    if not isinstance(marker, dict) or marker.get("format") != _FORMAT:
        raise _foreign(path)
    return marker


def _foreign(path: Path) -> PageferryError:
    return PageferryError(
        "a directory of another program has the name of our tree",
        value=path,
        reason="pageferry did not make it, and does not change it",
        hint="move it away",
        code=ExitCode.NOT_STARTED,
    )


def _unpack_whole(source: Source, path: Path) -> None:
    """Unpack under another name first, so that an existing tree is complete."""
    partial = path.with_name(f"{path.name}.partial")
    # The caller holds the lock, so an existing one is from an interrupted run.
    shutil.rmtree(partial, ignore_errors=True)
    output.talk(f"unpacking {source.path}")
    try:
        partial.mkdir(parents=True)
        unpack(source, partial)
        marker = {"format": _FORMAT, "identity": source.identity}
        (partial / _MARKER).write_text(json.dumps(marker))
        partial.rename(path)
    except BaseException as error:
        shutil.rmtree(partial, ignore_errors=True)
        if isinstance(error, OSError):
            what = "cannot unpack the kernel source"
            raise from_os_error(error, what, ExitCode.NOT_STARTED) from error
        raise


def sync(tree: Tree, changes: Changes) -> int:
    """Update the tree; returns the number of changed files."""

    def pristine(name: str) -> Path | None:
        saved = tree.path / _PRISTINE / name
        if saved.is_file():
            return saved
        original = tree.path / name
        return original if original.is_file() and name not in added_before else None

    try:
        added_before = _read_added(tree)
        wanted = wanted_files(changes, pristine)
        return _write(tree, wanted, added_before)
    except OSError as error:
        what = "cannot update the kernel tree"
        raise from_os_error(error, what, ExitCode.NOT_STARTED) from error


def _read_added(tree: Tree) -> set[str]:
    """Read the list of files that the tool has added to the base release."""
    try:
        return set(json.loads((tree.path / _ADDED).read_text()))
    except FileNotFoundError:
        return set()
    except ValueError:
        raise PageferryError(
            "the record of added files is damaged",
            value=tree.path / _ADDED,
            hint=f"rm -r {tree.path}",
            code=ExitCode.NOT_STARTED,
        ) from None


def _write(tree: Tree, wanted: dict[str, WantedFile], added_before: set[str]) -> int:
    changed = 0
    saved = tree.path / _PRISTINE
    changed_before = {
        path.relative_to(saved).as_posix()
        for path in saved.rglob("*")
        if path.is_file() and not path.name.endswith(".pageferry-new")
    }
    in_base = {
        name
        for name in wanted
        if name not in added_before and (tree.path / name).exists()
    }
    added = {name for name in wanted if name not in in_base | changed_before}
    # Write the list before the files, so that an interrupted run leaves no added
    # file without an entry.
    _replace(tree.path / _ADDED, json.dumps(sorted(added | added_before)).encode())
    for name in sorted(in_base - changed_before):
        _replace(saved / name, (tree.path / name).read_bytes(), tree.path / name)
    for name, file in sorted(wanted.items()):
        changed += _put(tree.path / name, file)
    for name in sorted(changed_before - wanted.keys()):
        original = saved / name
        mode = bool(original.stat().st_mode & 0o100)
        changed += _put(tree.path / name, WantedFile(original.read_bytes(), mode))
        original.unlink()
    for name in sorted(added_before - wanted.keys()):
        with suppress(FileNotFoundError):
            (tree.path / name).unlink()
            changed += 1
        _prune_empty(tree.path, (tree.path / name).parent)
    _replace(tree.path / _ADDED, json.dumps(sorted(added)).encode())
    return changed


def _put(path: Path, file: WantedFile) -> int:
    """Write a file if its content or its mode differs."""
    try:
        mode = bool(path.stat().st_mode & 0o100)
        if path.read_bytes() == file.content and mode == file.executable:
            return 0
    except FileNotFoundError:
        pass
    _replace(path, file.content)
    path.chmod(0o755 if file.executable else 0o644)
    return 1


def _replace(path: Path, content: bytes, like: Path | None = None) -> None:
    """Write a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    scratch = path.with_name(path.name + ".pageferry-new")
    try:
        scratch.write_bytes(content)
        if like is not None:
            shutil.copymode(like, scratch)
        scratch.replace(path)
    except OSError:
        scratch.unlink(missing_ok=True)
        raise


def _prune_empty(top: Path, directory: Path) -> None:
    """Remove directories that are empty now."""
    while directory != top:
        try:
            directory.rmdir()
        except OSError:
            return
        directory = directory.parent
