# SPDX-License-Identifier: GPL-2.0-only
"""Formatters and checkers, so that one run and one summary cover everything."""

from __future__ import annotations

import hashlib
import os
import re
import subprocess
import sys
from collections.abc import Sequence
from functools import cache
from pathlib import Path

import pytest

from helpers import builds, sources
from helpers.sources import LINUX
from pageferry import paths, proc
from pageferry.kernel import bases, origin, tree
from pageferry.kernel.build import (
    BuildRequest,
    BuiltKernel,
    make_command,
    plan_build,
)

ROOT = Path(__file__).resolve().parents[2]
C_FILES = [
    *sources.found(sources.TREE, "**/*.c", "**/*.h"),
    *sorted((LINUX / "only").glob("**/*.[ch]")),
    *sorted((LINUX / "series").glob("**/*.[ch]")),
]
HOOKS = sources.found(LINUX, "hooks/**/*.patch", "series/**/*.patch")
BASES = bases.names(LINUX)
# Sparse does not know that guard() releases a lock, and reports an imbalance.
WITH_GUARDS = {"kernel/sched/bandwidth.c"}


def run_tool(*argv: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a checker with the programs of the environment first."""
    env = {**os.environ, "PATH": paths.venv_path(), "LC_ALL": "C"}
    return proc.capture(argv, cwd=cwd, env=env)


def tracked(pattern: str) -> list[Path]:
    """List files by git, or by the file system in an export."""
    listed = proc.capture(["git", "ls-files", "-z", pattern], cwd=ROOT)
    if listed.returncode == 0:
        return [ROOT / name for name in listed.stdout.split("\0") if name]
    return sorted(ROOT.rglob(pattern))


def test_ruff_finds_nothing() -> None:
    done = run_tool("ruff", "check", "--no-cache", "src", "tests", "scripts")
    assert done.returncode == 0, done.stdout


def test_python_is_formatted() -> None:
    done = run_tool(
        "ruff", "format", "--check", "--no-cache", "src", "tests", "scripts"
    )
    assert done.returncode == 0, done.stdout


def test_types_are_right() -> None:
    done = run_tool(sys.executable, "-m", "mypy")
    assert done.returncode == 0, done.stdout


def is_at_hand(base: str) -> bool:
    """Say whether this machine has a source of a base."""
    return origin.at_hand(bases.read(LINUX, base)) is not None


def base_of(path: Path) -> str:
    """Return the base whose checker reads a file: without a base, the newest there is."""
    for part in path.relative_to(LINUX).parts:
        if part in BASES:
            return part
    return next(filter(is_at_hand, reversed(BASES)), bases.DEFAULT)


def checkpatch(base: str) -> Path:
    """Return the kernel's checker, from a base that the patches apply to."""
    found = origin.choose(LINUX, base, None, vanilla=False, fetch=False).source
    path = tree.tree_path(found, vanilla=False)
    # An existing tree is complete. A build holds its lock, so do not take it.
    if not path.exists():
        with tree.locked(path):
            tree.prepare(found, vanilla=False)
    return path / "scripts" / "checkpatch.pl"


class Checkpatch:
    """Checkpatch's complaints about each file; a clean file is not checked again.

    Each check takes more than a second.
    """

    _QUIET = ("--strict", "--terse", "--no-summary")

    def __init__(self, script: Path) -> None:
        self.script = script
        self.root = script.parents[1]
        self.known = paths.make_cache_dir("style") / "checkpatch"
        self.said: list[str] = []
        # Checkpatch also reads these word lists.
        self.tools = [
            script,
            *sorted(script.parent.glob("*.txt")),
            *sorted(script.parent.glob("*.checkpatch")),
        ]

    def _key(self, path: Path, options: Sequence[str]) -> str:
        digest = hashlib.sha256(repr((path.name, options)).encode())
        for file in (*self.tools, path):
            digest.update(hashlib.sha256(file.read_bytes()).digest())
        return digest.hexdigest()

    def look(self, files: Sequence[Path], *options: str) -> None:
        """Check all files in one process, as each start takes time."""
        clean = set(self.known.read_text().split()) if self.known.exists() else set()
        keys = {path: self._key(path, options) for path in files}
        new = [path for path, key in keys.items() if key not in clean]
        if not new:
            return
        argv = ["perl", str(self.script), f"--root={self.root}", *self._QUIET]
        done = run_tool(*argv, *options, *new, cwd=self.root)
        assert done.stderr == "" and done.returncode in (0, 1), done.stderr
        said = done.stdout.splitlines()
        # Each line names its file.
        blamed = {line.partition(":")[0] for line in said}
        assert blamed <= {str(path) for path in new}, said
        self.said += said
        found = sorted(keys[path] for path in new if str(path) not in blamed)
        with self.known.open("a") as known:
            known.write("".join(f"{key}\n" for key in found))

    def complaints(self, path: Path) -> list[str]:
        """Return the complaints about one file."""
        return [line for line in self.said if line.startswith(f"{path}:")]


@cache
def checked(base: str) -> Checkpatch:
    """Return the complaints of a base's checkpatch about its files and hooks."""
    checked = Checkpatch(checkpatch(base))
    c_files = [path for path in C_FILES if base_of(path) == base]
    # Our files are not in MAINTAINERS, and checkpatch must not ask git.
    ignored = "--ignore=FILE_PATH_CHANGES"
    # Linux formats TRACE_EVENT() in the same way everywhere, but checkpatch makes no
    # exception for it.
    for_traces = f"{ignored},OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"
    # Hooks stay small, so new code lies in other files. Hooks are not mails, and need
    # no signature. EMBEDDED_FILENAME is about mm/Kconfig's "source" line, which names a
    # file.
    for_hooks = f"{ignored},MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF,COMMIT_MESSAGE"
    for_hooks += ",EMBEDDED_FILENAME"
    traces = [path for path in c_files if "trace" in path.parts]
    checked.look([path for path in c_files if path not in traces], ignored, "-f")
    checked.look(traces, for_traces, "-f")
    checked.look([path for path in HOOKS if base_of(path) == base], for_hooks)
    return checked


def complaints(path: Path) -> list[str]:
    """Return checkpatch's complaints about a file; skip without a source."""
    base = base_of(path)
    if base != bases.DEFAULT and not is_at_hand(base):
        pytest.skip(f"no source of Linux {base} on this machine")
    return checked(base).complaints(path)


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(LINUX)))
def test_checkpatch_likes_the_file(path: Path) -> None:
    assert complaints(path) == []


@pytest.mark.parametrize("path", HOOKS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_checkpatch_likes_the_hook(path: Path) -> None:
    assert complaints(path) == []


def test_sparse_finds_nothing(kernel_debug: BuiltKernel) -> None:
    ours = sources.ours("**/*.c", "**/*.h")
    compiled = sources.compiled(ours)
    assert set(compiled) >= WITH_GUARDS
    names = [name for name in compiled if name not in WITH_GUARDS]
    # Only kbuild knows the objects of a module.
    objects = [f"{n[:-2]}.o" for n in names if not n.startswith("drivers/")]
    drivers = [f"{top}/" for top in builds.TOUCHED if top.startswith("drivers/")]
    plan = plan_build(BuildRequest(configs=kernel_debug.configs))
    # Use the command line of the build, or kbuild compiles again.
    done = run_tool(*make_command(plan), "C=2", *objects, *drivers)
    assert done.returncode == 0, done.stderr
    assert sources.unchecked(done.stdout, names) == []
    said = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if re.match(r"[^:]+:\d+:\d+: (warning|error)", line)
        and line.partition(":")[0].removeprefix("../") in ours
    ]
    assert said == []


def test_every_source_file_names_its_licence() -> None:
    exempt = {".md", ".csv", ".json", ".jsonl", ".patch", ".png", ".svg", ".rst"}
    missing = [
        str(path.relative_to(ROOT))
        for path in tracked("*")
        if path.is_file()
        and path.suffix not in exempt
        and "LICENSES" not in path.parts
        and path.name not in {"config", "settings"}
        and "golden" not in path.parts
        and "ABI" not in path.parts
        # Debian's tools allow no comment in some of these; debian/copyright has all.
        and path.relative_to(ROOT).parts[0] != "debian"
        and "SPDX-License-Identifier:" not in path.read_text(errors="replace")[:400]
    ]
    assert missing == []


def test_no_source_file_is_too_long() -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in tracked("*")
        if path.suffix in {".py", ".c", ".h", ".sh"}
        and path.is_file()
        and (lines := path.read_text().count("\n")) > 600
    }
    assert long == {}


def test_shell_scripts_stay_short() -> None:
    scripts = [ROOT / "pageferry", ROOT / ".ci" / "run", *tracked("*.sh")]
    scripts.append(ROOT / "packaging/systemd/pageferry-boot")
    for script in scripts:
        if "linux" in script.relative_to(ROOT).parts:
            continue  # The kernel's selftests have their own conventions.
        lines = script.read_text().splitlines()
        code = [line for line in lines if line.strip() and not line.startswith("#")]
        assert len(code) <= 20, script
