# SPDX-License-Identifier: GPL-2.0-only
"""The files of a patched kernel that differ from the pristine one.

This module writes to no tree. It applies the hooks to copies of pristine files in a
scratch directory, and returns the results with the files of ours.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry import proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.bases import point

_IGNORED_SUFFIXES = frozenset(
    (".o", ".ko", ".mod", ".cmd", ".a", ".d", ".orig", ".rej", ".pyc", ".swp")
)
_ELF = b"\x7fELF"
# A directory with variants for the point releases FIRST-LAST, or from FIRST on.
_RANGE = re.compile(r"(\d+)-(\d*)")
_TOUCHED = re.compile(r"^(?:---|\+\+\+) ([^\t\n]+)", re.MULTILINE)


@dataclass(frozen=True)
class WantedFile:
    """The wanted content and mode of a file in the tree."""

    content: bytes
    executable: bool = False


@dataclass(frozen=True)
class Hook:
    """A patch, read into memory, so that later edits do not matter."""

    path: Path
    content: bytes

    def touched(self) -> list[str]:
        """List the files that the patch changes or creates."""
        names: list[str] = []
        for name in _TOUCHED.findall(self.content.decode(errors="replace")):
            below = name.split("/", 1)[-1]
            if name != "/dev/null" and below not in names:
                names.append(below)
        return names


@dataclass(frozen=True)
class Changes:
    """All differences between a patched kernel and a pristine one."""

    tree: dict[str, WantedFile]
    hooks: tuple[Hook, ...]

    def digest(self) -> str:
        """Return a hash of all changes."""
        digest = hashlib.sha256()
        for name, wanted in sorted(self.tree.items()):
            digest.update(f"{name}\0{wanted.executable}\0".encode())
            digest.update(hashlib.sha256(wanted.content).digest())
        for hook in self.hooks:
            digest.update(f"{hook.path.name}\0".encode())
            digest.update(hashlib.sha256(hook.content).digest())
        return digest.hexdigest()


NO_CHANGES = Changes({}, ())


class HookRejectedError(PageferryError):
    """A hook does not apply to a source."""


def read_changes(linux: Path, base: str, version: str) -> Changes:
    """Read the files of ours, and the hooks for a release of a base, into memory."""
    # A file that only this base has may replace one of linux/tree.
    tree = _read_files(linux / "tree") | _read_files(linux / "only" / base)
    found = choose_hooks(linux / "hooks" / base, point(version))
    hooks = tuple(Hook(path, path.read_bytes()) for path in found)
    return Changes(tree, hooks)


def _read_files(top: Path) -> dict[str, WantedFile]:
    """Read all files below a directory, except for those that a build leaves."""
    files: dict[str, WantedFile] = {}
    for path in sorted(top.rglob("*")):
        if path.suffix in _IGNORED_SUFFIXES or "__pycache__" in path.parts:
            continue
        if path.is_symlink() or not path.is_file():
            continue
        content = path.read_bytes()
        if content.startswith(_ELF):
            continue  # A compiled selftest.
        executable = bool(path.stat().st_mode & 0o100)
        files[path.relative_to(top).as_posix()] = WantedFile(content, executable)
    return files


def choose_hooks(directory: Path, number: int) -> list[Path]:
    """List the hooks for point release `number`, in their order.

    A directory FIRST-LAST, or FIRST- without an end, contains variants for those
    releases. A variant replaces the hook of the same name in `directory`. Without
    such a hook, the other releases do not have it.
    """
    chosen = {path.name: path for path in directory.glob("*.patch")}
    varied: dict[str, Path] = {}
    for folder in sorted(path for path in directory.iterdir() if path.is_dir()):
        match = _RANGE.fullmatch(folder.name)
        if match is None:
            raise _bad_variant(folder, "its name is no range, such as 90-117 or 118-")
        first, last = int(match[1]), int(match[2] or number)
        if not first <= number <= last:
            continue
        for path in folder.glob("*.patch"):
            if path.name in varied:
                raise _bad_variant(
                    path, f"so is {varied[path.name]} for release {number}"
                )
            varied[path.name] = path
    return [path for _, path in sorted((chosen | varied).items())]


def subjects(directory: Path) -> dict[str, str]:
    """Map the name of each hook and variant of a base to its subject."""
    found: dict[str, str] = {}
    for path in sorted(directory.rglob("*.patch")):
        first = path.read_text(errors="replace").partition("\n")[0]
        found.setdefault(path.stem, first.removeprefix("Subject:").strip())
    return dict(sorted(found.items()))


def all_touched(directory: Path) -> list[str]:
    """List every file that any hook or variant of a base touches."""
    hooks = [Hook(path, path.read_bytes()) for path in directory.rglob("*.patch")]
    return sorted({name for hook in hooks for name in hook.touched()})


def wanted_files(
    changes: Changes, pristine: Callable[[str], Path | None]
) -> dict[str, WantedFile]:
    """Return every file that differs from the pristine tree.

    pristine(name) returns the path of the base release's file, or None.
    """
    touched = sorted({name for hook in changes.hooks for name in hook.touched()})
    for name in touched:
        if name in changes.tree:
            raise _broken(changes.hooks, f"linux/tree or linux/only has {name}")
        if name.startswith("/") or ".." in Path(name).parts:
            raise _broken(changes.hooks, f"it names a file outside the tree: {name}")
    wanted = dict(changes.tree)
    with tempfile.TemporaryDirectory(prefix="pageferry-hooks-") as scratch_name:
        scratch = Path(scratch_name)
        for name in touched:
            original = pristine(name)
            if original is not None:
                (scratch / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(original, scratch / name)
        for hook in changes.hooks:
            _apply(hook, scratch)
        for name in touched:
            result = scratch / name
            if result.exists():
                executable = bool(result.stat().st_mode & 0o100)
                wanted[name] = WantedFile(result.read_bytes(), executable)
            else:
                raise _broken(changes.hooks, f"it removes {name}, which hooks may not")
    return wanted


def _apply(hook: Hook, scratch: Path) -> None:
    patch_file = scratch / ".pageferry-hook.patch"
    patch_file.write_bytes(hook.content)
    patch = proc.find_tool("patch", "patch")
    argv = [patch, "-p1", "--fuzz=0", "--force", "--no-backup-if-mismatch"]
    done = proc.capture([*argv, "-i", patch_file.name], cwd=scratch)
    patch_file.unlink()
    if done.returncode == 0:
        return
    rejects = sorted(scratch.rglob("*.rej"))
    failed = [str(r.relative_to(scratch))[: -len(".rej")] for r in rejects]
    detail = "\n".join(r.read_text(errors="replace") for r in rejects) or done.stdout
    said = (done.stderr.strip() or done.stdout.strip()).splitlines() or ["patch failed"]
    raise HookRejectedError(
        "hook does not apply",
        value=hook.path,
        reason=f"rejected in {', '.join(failed)}" if failed else said[-1],
        detail=detail,
        hint="bring the hook up to date with this kernel, without fuzz",
        code=ExitCode.NOT_STARTED,
    )


def _bad_variant(path: Path, reason: str) -> PageferryError:
    return PageferryError(
        "not a variant of hooks", value=path, reason=reason, code=ExitCode.NOT_STARTED
    )


def _broken(hooks: Sequence[Hook], reason: str) -> PageferryError:
    names = ", ".join(h.path.name for h in hooks if reason.split()[-1] in h.touched())
    return PageferryError(
        "hook cannot be used",
        value=names or None,
        reason=reason,
        code=ExitCode.NOT_STARTED,
    )
