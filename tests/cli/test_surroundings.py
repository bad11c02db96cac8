# SPDX-License-Identifier: GPL-2.0-only
"""Containers without /sys, closed pipes, other locales, and times of short commands."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from pageferry import cli, output
from pageferry.commands import ABOUT
from pageferry.errors import PageferryError
from pageferry.move import targets
from pageferry.sysfs.files import Files

from .conftest import ROOT, Tool

# Commands that answer at once; none of them writes to the machine.
SHORT = (
    *("--help", "--version", "status", "status --json", "doctor", "engine list"),
    *("off --dry-run", "interleave status", "model", "kernel bases"),
    *("move --pid 1 --from 0 --to 1 --dry-run", "move --offline-check 0"),
    *("vm run --topology list", "bench demotion --live --dry-run"),
    *("balance --name x --dry-run --for 1s", "balance --measure"),
    *("nosuch --json", "status nosuch --json"),
)


@pytest.mark.parametrize("words", SHORT)
def test_a_container_without_sys(tool: Tool, words: str) -> None:
    done = tool.run(*words.split(), PAGEFERRY_SYSFS_ROOT=str(tool.home), LC_ALL="C")
    assert "Traceback" not in done.stderr
    assert done.returncode in (0, 2, 3)
    if done.returncode == 3 and "json" not in words and words != "doctor":
        said = done.stderr.splitlines()
        assert said[0].startswith("pageferry: ")


def test_a_machine_without_nodes_is_named(tool: Tool) -> None:
    argv = ("bench", "demotion", "--live", "--dry-run")
    error = tool.fails(3, *argv, PAGEFERRY_SYSFS_ROOT=str(tool.home))
    assert error["reason"] == "this machine has no node 0"


@pytest.mark.parametrize("words", SHORT)
def test_a_closed_pipe_is_no_traceback(tool: Tool, words: str) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(
        [sys.executable, "-m", "pageferry", *words.split()],
        env=tool.full_environment({"PAGEFERRY_SYSFS_ROOT": str(tool.home)}),
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        check=False,
    )
    os.close(writer)
    assert "Traceback" not in done.stderr
    assert "Exception ignored" not in done.stderr


def test_names_in_other_encodings_are_shown(tool: Tool) -> None:
    name = b"/sys/kernel/\xff\xe9".decode(errors="surrogateescape")
    file = tool.home / "x"
    file.write_bytes(b"a \xe9 b\n")
    assert Files(tool.home).read("/x") == "a \udce9 b"
    code = f"from pageferry import output; output.prepare(); output.answer({name!r})"
    shown = subprocess.run(
        [sys.executable, "-c", code],
        env=tool.full_environment({"PYTHONIOENCODING": "ascii:strict"}),
        capture_output=True,
        text=True,
        check=True,
    )
    assert shown.stdout == "/sys/kernel/\\udcff\\udce9\n"


def test_a_bar_fits_a_narrow_terminal(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    progress = output.Progress("measuring", 10)
    progress.bar = True
    progress._show(progress.start + 7)
    shown = capsys.readouterr().err.replace("\r", "").replace("\033[K", "")
    assert shown == "measuring [........"


def test_cgroups_of_version_1_are_found(tmp_path: Path) -> None:
    files = Files(tmp_path)
    there = tmp_path / "sys/fs/cgroup/memory/web"
    there.mkdir(parents=True)
    (tmp_path / "sys/fs/cgroup/cpu").mkdir()
    (there / "cgroup.procs").touch()
    assert targets._directory(files, "/web") == there
    assert targets._directory(files, "memory/web") == there
    assert targets._directory(files, "/sys/fs/cgroup/memory/web") == there
    with pytest.raises(PageferryError, match="no such cgroup"):
        targets._directory(files, "/mail")


def test_help_loads_no_command(tool: Tool) -> None:
    """Loading all commands takes a quarter of a second."""
    code = (
        "import sys; from pageferry import cli\n"
        "try: cli.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print(*[m for m in sys.modules if m.startswith('pageferry.')], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=tool.full_environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stderr.split()
    assert "pageferry.cli" in loaded
    assert not [name for name in loaded if name.startswith("pageferry.commands.")]
    shown = re.findall(r"^    (\S+)", done.stdout, re.MULTILINE)
    assert shown[:3] == ["status", "top", "move"]


def test_status_loads_little(tool: Tool) -> None:
    """Each module takes a millisecond. `status` may take as long as 150 of them."""
    code = (
        "import sys; from pageferry import cli; cli.main(['status'])\n"
        "print(*sys.modules, file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-S", "-c", code],
        env=tool.full_environment({}),
        capture_output=True,
        text=True,
        check=True,
    )
    loaded = done.stderr.splitlines()[-1].split()
    commands = [name for name in loaded if name.startswith("pageferry.commands.")]
    assert commands == ["pageferry.commands.status"]
    assert len(loaded) < 150
    assert not {"msgspec", "rich", "prometheus_client", "argcomplete"} & set(loaded)


def test_the_launcher_starts_one_python(tmp_path: Path) -> None:
    venv = tmp_path / "cache/pageferry/venv-1"
    programs = tmp_path / "bin"
    for folder, name in ((venv / "bin", "python"), (programs, "python3")):
        folder.mkdir(parents=True)
        (folder / name).write_text('#!/bin/sh\necho "${0##*/} ${1##*/} $2 $3"\n')
        (folder / name).chmod(0o755)
    (tmp_path / "cache/pageferry/venv").symlink_to("venv-1")
    path = f"{programs}:{os.environ['PATH']}"
    environment = {**os.environ, "XDG_CACHE_HOME": f"{tmp_path}/cache", "PATH": path}

    def answer() -> str:
        return subprocess.check_output(
            [ROOT / "pageferry", "status"], env=environment, text=True
        ).strip()

    assert answer() == "python3 bootstrap.py launch status"
    listing = ROOT / "requirements/run.txt"
    (venv / ".run.done").write_bytes(listing.read_bytes())
    assert answer() == "python -m pageferry status"
    (venv / ".run.done").write_text("other==1.0\n")
    assert answer() == "python3 bootstrap.py launch status"


def test_an_unknown_option_names_the_help_of_its_verb(tool: Tool) -> None:
    error = tool.fails(2, "balance", "--bogus", "1")
    assert error["hint"] == "pageferry balance --help"


def test_each_first_word_has_a_line() -> None:
    words = list(dict.fromkeys(cli.first_word(*row) for row in cli.COMMANDS))
    assert words == list(ABOUT)
