# SPDX-License-Identifier: GPL-2.0-only
"""`kernel series` from end to end, on a fake kernel that builds in a moment."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest

from helpers.fake_kernel import make_checkout
from helpers.fake_series import PRISTINE, add_series, make_source
from pageferry.kernel.hooks import read_changes, wanted_files

from .conftest import Tool


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A fake kernel."""
    return make_source(tmp_path / "linux.tar.xz")


@pytest.fixture
def known(tmp_path: Path) -> Tool:
    """The tool in a checkout with series, of a user whom git knows."""
    checkout = make_checkout(tmp_path / "checkout")
    shutil.rmtree(checkout / "linux/tree")
    for hook in checkout.glob("linux/hooks/6.12/*.patch"):
        hook.unlink()
    add_series(checkout / "linux")
    settings = tmp_path / "gitconfig"
    settings.write_text(
        "[user]\n\tname = Ann Author\n\temail = ann@example.org\n"
        "[format]\n\tsignOff = true\n[commit]\n\tgpgSign = true\n"
    )
    return Tool(
        tmp_path,
        {"PAGEFERRY_ROOT": str(checkout), "GIT_CONFIG_GLOBAL": str(settings)},
    )


def words(tool: Tool, name: str, source: Path) -> list[str]:
    output = tool.home / "mails"
    return ["kernel", "series", name, f"--source={source}", f"--output={output}"]


def write(tool: Tool, name: str, source: Path, *more: str | Path) -> list[Path]:
    done = tool.run(*words(tool, name, source), "--json", *more)
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert document["output"] == str(tool.home / "mails")
    assert document["release"] == "6.12.9"
    return [Path(mail) for mail in document["mails"]]


def left_over(tool: Tool) -> list[Path]:
    return [
        path for path in tool.home.iterdir() if path.name.startswith((".", "mails"))
    ]


def test_list_shows_all_series(known: Tool) -> None:
    done = known.run("kernel", "series", "list")
    assert done.returncode == 0
    assert "everything" in done.stdout and "a diff of its own" in done.stdout
    document = json.loads(known.run("kernel", "series", "list", "--json").stdout)
    after = {entry["series"]: entry["after"] for entry in document["series"]}
    assert after == {"everything": [], "later": ["own"], "own": []}


def test_git_am_gives_the_tree_of_a_build(known: Tool, source: Path) -> None:
    mails = write(known, "everything", source)
    assert [mail.name[:4] for mail in mails] == ["0000", "0001", "0002", "0003"]
    tree = known.home / "tree"
    git = ["git", "-C", str(tree), "-c", "user.name=x", "-c", "user.email=x@y"]
    for name, text in PRISTINE.items():
        (tree / name).parent.mkdir(parents=True, exist_ok=True)
        (tree / name).write_text(text)
    subprocess.run(["git", "init", "-q", tree], check=True)
    subprocess.run([*git, "add", "-A"], check=True)
    subprocess.run([*git, "commit", "-q", "-m", "base"], check=True)

    def pristine(name: str) -> Path | None:
        return tree / name if name in PRISTINE else None

    linux = Path(known.environment["PAGEFERRY_ROOT"], "linux")
    wanted = wanted_files(read_changes(linux, "6.12", "6.12.9"), pristine)
    subprocess.run([*git, "am", "-q", *mails[1:]], check=True)
    listed = subprocess.run(
        [*git, "ls-files"], check=True, capture_output=True, text=True
    ).stdout.split()
    assert set(listed) == PRISTINE.keys() | wanted.keys()
    for name in listed:
        expected = wanted[name].content if name in wanted else PRISTINE[name].encode()
        assert (tree / name).read_bytes() == expected
    assert left_over(known) == [known.home / "mails"]


def test_the_mails_say_who_and_why(known: Tool, source: Path) -> None:
    cover, only = (mail.read_text() for mail in write(known, "own", source))
    assert "Subject: [PATCH 0/1] a diff of its own" in cover
    assert "It has a diff of its own.\n\nThis series applies to Linux 6.12.9." in cover
    assert "It needs nothing." in cover and "mm/migrate.c | 2 +-" in cover
    assert "From: Ann Author <ann@example.org>" in only
    assert "Subject: [PATCH 1/1] mm: change a line\n\nSay why.\n---\n" in only
    assert "Signed-off-by" not in cover + only


def test_the_mails_leave_out_earlier_series(known: Tool, source: Path) -> None:
    cover, only = (mail.read_text() for mail in write(known, "later", source))
    assert "applies to Linux 6.12.9 with pageferry's series own, in this" in cover
    assert "Subject: [PATCH 1/1] mm: change another line" in only
    assert "+first early" in only and "+own" not in only
    assert "mm/own.c" not in cover
    # The fake kernel adds a line for each build: one for the only patch.
    built = next(known.cache.glob("kernel/*-series/build-vm/built"))
    assert built.read_text().split() == ["mm/"]


def test_each_step_is_built(known: Tool, source: Path) -> None:
    write(known, "everything", source)
    built = next(known.cache.glob("kernel/*-series/build-vm/built"))
    # The second directory exists from the second patch on.
    expected = [*["drivers/new/"] * 2, *["mm/"] * 3]
    assert sorted(built.read_text().split()) == expected


def test_no_build_compiles_nothing(known: Tool, source: Path) -> None:
    write(known, "everything", source, "--no-build")
    assert not list(known.cache.glob("kernel/*-series/build-*"))


def test_a_step_that_does_not_build(known: Tool, source: Path) -> None:
    linux = Path(known.environment["PAGEFERRY_ROOT"], "linux")
    (linux / "series/own/tree/mm/own.c").write_text("broken\n")
    error = known.fails(5, *words(known, "own", source))
    assert "error: no such thing" in error["detail"]
    assert left_over(known) == []


def test_checkpatch_has_to_be_content(known: Tool, source: Path) -> None:
    linux = Path(known.environment["PAGEFERRY_ROOT"], "linux")
    (linux / "series/own/tree/mm/own.c").write_text("ugly\n")
    error = known.fails(1, *words(known, "own", source))
    assert error["detail"].startswith("0001-mm-change-a-line.patch:")
    assert "WARNING:UGLY" in error["detail"]
    assert left_over(known) == []


@pytest.mark.parametrize(
    ("wrong", "code", "what"),
    [
        (["none"], 2, "unknown series"),
        (["own", "--base", "5.4"], 2, "unknown base"),
        (["own", "--jobs", "0"], 2, "--jobs"),
        (["own", "--output", "/proc/version"], 2, "not a directory"),
        (["own", "--output", "/usr"], 2, "not empty"),
        (["own", "--output", "/nowhere/mails"], 2, "in no directory"),
        (["own", "--source", "/nowhere"], 2, "no such source"),
    ],
)
def test_wrong_arguments(
    known: Tool, source: Path, wrong: list[str], code: int, what: str
) -> None:
    argv = words(known, wrong[0], source)
    error = known.fails(code, *argv, *wrong[1:])
    assert what in error["what"]
    assert left_over(known) == []


def test_a_source_of_another_release(known: Tool, tmp_path: Path) -> None:
    tree = tmp_path / "other"
    tree.mkdir()
    text = PRISTINE["Makefile"].replace("PATCHLEVEL = 12", "PATCHLEVEL = 6")
    (tree / "Makefile").write_text(text)
    error = known.fails(5, "kernel", "series", "own", "--source", tree)
    assert "not the source of Linux 6.12" in error["what"]
    assert "it is 6.6.9" in error["reason"]


def test_an_unknown_author(known: Tool, source: Path, tmp_path: Path) -> None:
    (tmp_path / "gitconfig").write_text("")
    error = known.fails(3, *words(known, "own", source))
    assert "author" in error["what"] and "git config" in error["hint"]
    assert left_over(known) == []


def test_too_little_disk(known: Tool, source: Path) -> None:
    small = known.home / "small"
    small.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=1M", "none", small],
        capture_output=True,
        check=False,
    )
    if mounted.returncode != 0:
        pytest.skip("cannot mount a tmpfs here")
    try:
        argv = words(known, "own", source)
        error = known.fails(5, *argv, XDG_CACHE_HOME=str(small))
        assert "no space" in error["what"] and "3 GiB needed" in error["reason"]
        assert left_over(known) == []
    finally:
        subprocess.run(["umount", small], check=True)


def test_an_interrupted_run_leaves_nothing(known: Tool, source: Path) -> None:
    linux = Path(known.environment["PAGEFERRY_ROOT"], "linux")
    (linux / "series/own/tree/mm/own.c").write_text("slow\n")
    process = known.start(*words(known, "own", source))
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if list(known.cache.glob("kernel/*-series/build-vm/sleeping")):
            break
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert left_over(known) == []
