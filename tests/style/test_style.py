# SPDX-License-Identifier: GPL-2.0-only
"""Formatters and checkers, so that one run and one summary cover everything."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from pageferry import paths, proc
from pageferry.kernel import source, tree
from pageferry.kernel.build import (
    BuildRequest,
    BuiltKernel,
    make_command,
    plan_build,
)

ROOT = Path(__file__).resolve().parents[2]
LINUX = ROOT / "linux"
C_FILES = sorted(p for p in (LINUX / "tree").rglob("*.[ch]"))
HOOKS = sorted((LINUX / "hooks").rglob("*.patch"))


def run_tool(*argv: str | Path, cwd: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """Run a checker with the programs of the environment first."""
    env = {**os.environ, "PATH": paths.venv_path(), "LC_ALL": "C"}
    return proc.capture(argv, cwd=cwd, env=env)


def tracked(pattern: str) -> list[Path]:
    """List files as git has them, or as they lie there in an export."""
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


@pytest.fixture(scope="session")
def checkpatch() -> Path:
    """The kernel's own checker, from the base that the patches are for."""
    origin = source.locate("6.12", None)
    path = tree.tree_path(origin, vanilla=False)
    # One that exists is whole; its lock is held for as long as a kernel is built.
    if not path.exists():
        with tree.locked(path):
            tree.prepare(origin, vanilla=False)
    return path / "scripts" / "checkpatch.pl"


def checkpatch_args(checkpatch: Path) -> list[str]:
    """Give the options that every use of checkpatch has."""
    quiet = ["--strict", "--terse", "--no-summary"]
    return ["perl", str(checkpatch), f"--root={checkpatch.parents[1]}", *quiet]


@pytest.fixture(scope="session")
def complaints(checkpatch: Path) -> Callable[[Path], list[str]]:
    """What checkpatch says about each file: it begins faster once than each time."""
    # Our files are not in MAINTAINERS, and git is not asked about them.
    ignored = "FILE_PATH_CHANGES"
    # TRACE_EVENT() is laid out the same way in all of Linux, and checkpatch knows
    # no exception for it.
    for_traces = f"{ignored},OPEN_ENDED_LINE,PARENTHESIS_ALIGNMENT"
    traces = [path for path in C_FILES if "trace" in path.parts]
    others = [path for path in C_FILES if path not in traces]
    said: list[str] = []
    for ignore, files in ((ignored, others), (for_traces, traces)):
        argv: list[str | Path] = [*checkpatch_args(checkpatch), "-f", *files]
        done = run_tool(*argv, f"--ignore={ignore}", cwd=checkpatch.parents[1])
        assert done.stderr == "" and done.returncode in (0, 1), done.stderr
        said += done.stdout.splitlines()
    # Each line is about one of them.
    names = {str(path) for path in C_FILES}
    assert {line.partition(":")[0] for line in said} <= names, said
    return lambda path: [line for line in said if line.startswith(f"{path}:")]


@pytest.mark.parametrize("path", C_FILES, ids=lambda p: str(p.relative_to(LINUX)))
def test_checkpatch_likes_the_file(
    complaints: Callable[[Path], list[str]], path: Path
) -> None:
    assert complaints(path) == []


@pytest.mark.parametrize("path", HOOKS, ids=lambda p: p.name)
def test_checkpatch_likes_the_hook(checkpatch: Path, path: Path) -> None:
    tree = checkpatch.parents[1]
    argv = checkpatch_args(checkpatch)
    # Hooks are made to be small: what they add lies in files of its own, and
    # they are not mails to sign.
    # EMBEDDED_FILENAME is about mm/Kconfig's "source" line, which names a file.
    ignored = "FILE_PATH_CHANGES,MISSING_SIGN_OFF,NO_AUTHOR_SIGN_OFF,COMMIT_MESSAGE"
    ignored += ",EMBEDDED_FILENAME"
    done = run_tool(*argv, f"--ignore={ignored}", path, cwd=tree)
    assert done.stdout == ""


def test_sparse_finds_nothing(kernel_debug: BuiltKernel) -> None:
    ours = {p.relative_to(LINUX / "tree").as_posix() for p in C_FILES}
    ours_in_mm = re.compile(r"mm/(damon/)?[^/]*\.c")
    core = sorted(name[:-2] + ".o" for name in ours if ours_in_mm.match(name))
    plan = plan_build(BuildRequest(configs=kernel_debug.configs))
    # The same command line as that of the build, or kbuild compiles again.
    done = run_tool(*make_command(plan), "C=2", *core, "drivers/migrate_offload/")
    assert done.returncode == 0, done.stderr
    assert core and "CHECK" in done.stdout
    said = [
        line
        for line in (done.stdout + done.stderr).splitlines()
        if re.match(r"[^:]+:\d+:\d+: (warning|error)", line)
        and line.partition(":")[0].removeprefix("../") in ours
    ]
    assert said == []


def test_every_source_file_names_its_licence() -> None:
    exempt = {".md", ".csv", ".json", ".patch", ".svg", ".rst"}
    missing = [
        str(path.relative_to(ROOT))
        for path in tracked("*")
        if path.is_file()
        and path.suffix not in exempt
        and "LICENSES" not in path.parts
        and path.name not in {"config", "settings"}
        and "golden" not in path.parts
        and "ABI" not in path.parts
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
    for script in scripts:
        if "linux" in script.relative_to(ROOT).parts:
            continue  # The kernel's selftests have their own conventions.
        lines = script.read_text().splitlines()
        code = [line for line in lines if line.strip() and not line.startswith("#")]
        assert len(code) <= 20, script
