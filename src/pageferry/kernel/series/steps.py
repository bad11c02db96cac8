# SPDX-License-Identifier: GPL-2.0-only
"""Build the kernel after each patch, as far as the series touches it.

The tree lies in the cache. Like that of `kernel build`, it changes file by file, so
that make compiles only the files that a patch affects.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from pageferry import output, paths, proc
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import build, config, tree
from pageferry.kernel.hooks import Changes
from pageferry.kernel.series.states import Files
from pageferry.kernel.source import Source
from pageferry.units import GIB

# An unpacked Linux, and objects of the directories that series touch.
_TREE_BYTES = 2 * GIB
_BUILD_BYTES = 1 * GIB
_SELFTESTS = PurePosixPath("tools/testing/selftests")
# kbuild does not compile these.
_NOT_BUILT = ("Documentation", "include", "scripts", "tools")
# kbuild compiles these files. A changed Makefile is no reason to build a directory: all
# drivers lie below drivers/Makefile.
_COMPILED = (".c", ".h", ".S")


def tree_path(source: Source) -> Path:
    """Return the path of the tree that the steps change."""
    name = tree.tree_path(source, vanilla=True).name.removesuffix("vanilla")
    return paths.cache_dir() / "kernel" / f"{name}series"


def check_space(source: Source, *, builds: bool) -> None:
    """Check the free space before anything is unpacked."""
    path = tree_path(source)
    wanted = 0 if path.exists() else _TREE_BYTES
    if builds and not any(path.glob("build-*")):
        wanted += _BUILD_BYTES
    place = path
    while not place.exists():
        place = place.parent
    free = shutil.disk_usage(place).free
    if free < wanted:
        raise PageferryError(
            "no space for a kernel tree",
            value=place,
            reason=f"{free / GIB:.1f} GiB are free, and {wanted / GIB:.0f} GiB needed",
            hint="free some space there, or set XDG_CACHE_HOME to a larger disk",
            code=ExitCode.NOT_STARTED,
        )


def prepare(source: Source) -> tree.Tree:
    """Return the tree, as the base release has it; the caller holds its lock."""
    prepared = tree.prepare_at(source, tree_path(source))
    tree.sync(prepared, Changes({}, ()))
    return prepared


@dataclass(frozen=True)
class _StepPlan(build.Plan):
    """A build plan in the tree of the series."""

    @property
    def tree_path(self) -> Path:
        return tree_path(self.source)


def directories(names: Iterable[str], has: Collection[str]) -> list[str]:
    """List the directories to build for some files.

    has: the files of the tree, or at least its Makefiles
    """
    tops: set[PurePosixPath] = set()
    for name in names:
        path = PurePosixPath(name)
        if path.parts[0] in _NOT_BUILT or path.suffix not in _COMPILED:
            continue
        for parent in path.parents[:-1]:
            if {f"{parent}/Makefile", f"{parent}/Kbuild"} & set(has):
                tops.add(parent)
                break
    return sorted(
        f"{top}/" for top in tops if not any(other in top.parents for other in tops)
    )


def _makefiles(root: Path, names: Iterable[str]) -> set[str]:
    """List the Makefiles above some files."""
    wanted = {
        f"{parent}/{kind}"
        for name in names
        for parent in PurePosixPath(name).parents
        for kind in ("Makefile", "Kbuild")
    }
    return {name for name in wanted if (root / name).is_file()}


def selftests(
    files: Files, before: Files, existing: Collection[str]
) -> dict[str, list[str]]:
    """List the suites of selftests that a step changes, each with its programs.

    A suite that the base release does not have is built as a whole, which an empty
    list means. `existing` has the base release's files.
    """
    found: dict[str, list[str]] = {}
    for name, file in sorted(files.items()):
        path = PurePosixPath(name)
        depth = len(_SELFTESTS.parts) + 1
        inside = path.is_relative_to(_SELFTESTS) and len(path.parts) > depth
        if not inside or before.get(name) == file:
            continue
        suite = "/".join(path.parts[:depth])
        makefile = f"{suite}/Makefile"
        if makefile in files and makefile not in existing:
            found[suite] = []
        elif path.suffix == ".c" and len(path.parts) == depth + 1:
            found.setdefault(suite, []).append(path.stem)
    return found


class Steps:
    """Builds the tree after each patch."""

    def __init__(
        self,
        plan: build.Plan,
        prepared: tree.Tree,
        lock: int,
        existing: Collection[str],
        before: Files,
    ) -> None:
        fields = {name: getattr(plan, name) for name in plan.__dataclass_fields__}
        self.plan = _StepPlan(**fields)
        self.prepared = prepared
        self.lock = lock
        self.existing = existing
        self.before = before
        self.plan.build_dir.mkdir(exist_ok=True)
        self.plan.log.parent.mkdir(parents=True, exist_ok=True)

    def build(self, files: Files, touched: set[str], title: str) -> None:
        """Build the directories that the whole series touches, and new selftests."""
        tree.sync(self.prepared, Changes(files, ()))
        root = self.prepared.path
        wanted = directories(touched, _makefiles(root, touched))
        progress = output.Progress(title, None)
        with self.plan.log.open("wb") as log:
            if wanted:
                self._configure(log.fileno(), progress)
                argv = [*build.make_command(self.plan), f"-j{self.plan.request.jobs}"]
                self._make([*argv, *wanted], log.fileno(), progress)
            for suite, programs in selftests(files, self.before, self.existing).items():
                self._selftests(suite, programs, log.fileno(), progress)
        progress.finish()
        self.before = files

    def _configure(self, log: int, progress: output.Progress) -> None:
        """Write .config; the tree may not have all symbols yet."""
        fragment = self.plan.build_dir / ".pageferry-fragment"
        fragment.write_text(config.render(self.plan.values))
        scratch = self.plan.build_dir / ".pageferry-config"
        scratch.unlink(missing_ok=True)
        argv = [*build.make_command(self.plan), f"KCONFIG_CONFIG={scratch}"]
        more = {"KCONFIG_ALLCONFIG": str(fragment)}
        self._make([*argv, "allnoconfig"], log, progress, more)
        current = self.plan.build_dir / ".config"
        if current.exists() and current.read_bytes() == scratch.read_bytes():
            scratch.unlink()
        else:
            scratch.replace(current)

    def _selftests(
        self, suite: str, programs: list[str], log: int, progress: output.Progress
    ) -> None:
        out = self.plan.build_dir / "selftests" / PurePosixPath(suite).name
        out.mkdir(parents=True, exist_ok=True)
        argv = ["make", "-C", str(self.prepared.path / suite)]
        argv += [f"OUTPUT={out}", "KHDR_INCLUDES="]
        self._make([*argv, *(str(out / name) for name in programs)], log, progress)

    def _make(
        self,
        argv: list[str],
        log: int,
        progress: output.Progress,
        more: dict[str, str] | None = None,
    ) -> None:
        env = {**build.environment(self.plan), **(more or {})}
        with proc.group(argv, env=env, pass_fds=(self.lock,)) as process:
            assert process.stdout is not None
            for line in process.stdout:
                os.write(log, line)
                progress.advance()
            code = process.wait()
        if code != 0:
            progress.finish()
            raise build.make_failed(self.plan, code)
