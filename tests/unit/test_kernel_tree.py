# SPDX-License-Identifier: GPL-2.0-only
"""Unpacks a source, applies hooks, and copies files whose content differs."""

from __future__ import annotations

import io
import tarfile
from pathlib import Path

import pytest

from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import source, tree
from pageferry.kernel.hooks import Changes, Hook, WantedFile, read_changes

MAKEFILE = "VERSION = 6\nPATCHLEVEL = 12\nSUBLEVEL = 9\nEXTRAVERSION =\n"
FILES = {"Makefile": MAKEFILE, "mm/migrate.c": "one\ntwo\nthree\n", "mm/x.c": "x\n"}
HOOK = """\
Say why.

--- a/mm/migrate.c
+++ b/mm/migrate.c
@@ -1,3 +1,3 @@
 one
-two
+TWO
 three
"""


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a temporary cache."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "pageferry"


def make_tarball(path: Path, files: dict[str, str]) -> Path:
    with tarfile.open(path, "w:xz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(f"linux-source-6.12/{name}")
            entry.size = len(text)
            archive.addfile(entry, io.BytesIO(text.encode()))
    return path


@pytest.fixture
def origin(tmp_path: Path) -> source.Source:
    """A very small kernel."""
    return source.locate("6.12", make_tarball(tmp_path / "linux.tar.xz", FILES))


def changes(*hooks: str, **added: str) -> Changes:
    wanted = {
        name.replace("__", "/"): WantedFile(text.encode())
        for name, text in added.items()
    }
    made = tuple(
        Hook(Path(f"000{i}-hook.patch"), text.encode()) for i, text in enumerate(hooks)
    )
    return Changes(wanted, made)


def test_a_tree_is_unpacked_once_and_whole(origin: source.Source) -> None:
    first = tree.prepare(origin, vanilla=True)
    assert first.version == "6.12.9"
    assert (first.path / "mm/migrate.c").read_text() == "one\ntwo\nthree\n"
    (first.path / "mm/x.c").write_text("mark\n")
    assert tree.prepare(origin, vanilla=True) == first
    assert (first.path / "mm/x.c").read_text() == "mark\n"


def test_flavours_have_trees_of_their_own(origin: source.Source) -> None:
    assert tree.tree_path(origin, True) != tree.tree_path(origin, False)


def test_a_directory_that_is_not_ours_is_left_alone(origin: source.Source) -> None:
    path = tree.tree_path(origin, vanilla=False)
    path.mkdir(parents=True)
    (path / "precious").write_text("data")
    with pytest.raises(PageferryError, match="did not make it"):
        tree.prepare(origin, vanilla=False)
    assert (path / "precious").read_text() == "data"


def test_hooks_and_new_files_arrive(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    assert tree.sync(made, changes(HOOK, mm__new="new\n")) == 2
    assert (made.path / "mm/migrate.c").read_text() == "one\nTWO\nthree\n"
    assert (made.path / "mm/new").read_text() == "new\n"


def test_a_second_sync_touches_nothing(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    tree.sync(made, changes(HOOK, mm__new="new\n"))
    names = ["mm/migrate.c", "mm/new", "mm/x.c"]
    before = [(made.path / name).stat().st_mtime_ns for name in names]
    assert tree.sync(made, changes(HOOK, mm__new="new\n")) == 0
    assert [(made.path / name).stat().st_mtime_ns for name in names] == before


def test_what_is_no_longer_wanted_goes(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    tree.sync(made, changes(HOOK, deep__er__new="new\n", mm__x="and\n"))
    assert tree.sync(made, changes()) == 3
    assert (made.path / "mm/migrate.c").read_text() == "one\ntwo\nthree\n"
    assert not (made.path / "deep").exists()
    assert not (made.path / "mm/x").exists()
    assert (made.path / "mm/x.c").read_text() == "x\n"


def test_hooks_apply_to_the_pristine_file_each_time(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    tree.sync(made, changes(HOOK))
    tree.sync(made, changes(HOOK.replace("+TWO", "+deux")))
    assert (made.path / "mm/migrate.c").read_text() == "one\ndeux\nthree\n"


def test_a_sync_cut_short_is_finished_by_the_next(
    origin: source.Source, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = tree.prepare(origin, vanilla=False)
    real_put = tree._put
    calls = 0

    def put_once(path: Path, file: WantedFile) -> int:
        nonlocal calls
        calls += 1
        if calls > 1:
            raise KeyboardInterrupt
        return real_put(path, file)

    with monkeypatch.context() as patched:
        patched.setattr(tree, "_put", put_once)
        with pytest.raises(KeyboardInterrupt):
            tree.sync(made, changes(HOOK, a="a\n", b="b\n"))
    tree.sync(made, changes())
    assert (made.path / "mm/migrate.c").read_text() == "one\ntwo\nthree\n"
    assert not (made.path / "a").exists()
    assert not (made.path / "b").exists()


def test_a_hook_that_does_not_apply_is_named_with_file_and_reject(
    origin: source.Source,
) -> None:
    made = tree.prepare(origin, vanilla=False)
    wrong = HOOK.replace("-two", "-zwei")
    with pytest.raises(PageferryError) as caught:
        tree.sync(made, changes(HOOK.replace("+TWO", "+two"), wrong))
    assert caught.value.value == "0001-hook.patch"
    assert caught.value.reason == "rejected in mm/migrate.c"
    assert caught.value.detail is not None and "-zwei" in caught.value.detail
    assert caught.value.code == ExitCode.NOT_STARTED
    assert (made.path / "mm/migrate.c").read_text() == "one\ntwo\nthree\n"


def test_hooks_apply_without_fuzz(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    with pytest.raises(PageferryError):
        tree.sync(made, changes(HOOK.replace(" one\n", " eins\n")))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd"])
def test_a_hook_cannot_leave_the_tree(origin: source.Source, name: str) -> None:
    made = tree.prepare(origin, vanilla=False)
    with pytest.raises(PageferryError):
        tree.sync(made, changes(HOOK.replace("a/mm/migrate.c", f"a/{name}")))


def test_a_hook_may_not_change_a_file_of_linux_tree(origin: source.Source) -> None:
    made = tree.prepare(origin, vanilla=False)
    with pytest.raises(PageferryError, match=r"linux/only has mm/migrate\.c"):
        tree.sync(
            made, Changes({"mm/migrate.c": WantedFile(b"x")}, changes(HOOK).hooks)
        )


def test_a_damaged_tarball_leaves_nothing(tmp_path: Path, cache: Path) -> None:
    whole = make_tarball(tmp_path / "linux.tar.xz", FILES).read_bytes()
    (tmp_path / "cut.tar.xz").write_bytes(whole[: len(whole) // 2])
    cut = source.locate("6.12", tmp_path / "cut.tar.xz")
    with pytest.raises(PageferryError) as caught:
        tree.prepare(cut, vanilla=True)
    assert caught.value.code == ExitCode.NOT_STARTED
    assert "damaged" in (caught.value.hint or "")
    assert [p.name for p in (cache / "kernel").iterdir()] == ["tarballs.json"]


def test_the_wrong_release_is_refused(tmp_path: Path) -> None:
    other = {**FILES, "Makefile": MAKEFILE.replace("= 12", "= 13")}
    wrong = source.locate("6.12", make_tarball(tmp_path / "l.tar.xz", other))
    with pytest.raises(PageferryError, match=r"it is 6\.13\.9"):
        tree.prepare(wrong, vanilla=True)


def test_a_source_directory_is_copied_and_not_changed(tmp_path: Path) -> None:
    directory = tmp_path / "linux"
    for name, text in FILES.items():
        (directory / name).parent.mkdir(parents=True, exist_ok=True)
        (directory / name).write_text(text)
    (directory / "mm/built.o").write_text("")
    made = tree.prepare(source.locate("6.12", directory), vanilla=False)
    tree.sync(made, changes(HOOK))
    assert (directory / "mm/migrate.c").read_text() == "one\ntwo\nthree\n"
    assert not (made.path / "mm/built.o").exists()


def test_identity_follows_the_content(tmp_path: Path) -> None:
    path = make_tarball(tmp_path / "linux.tar.xz", FILES)
    first = source.locate("6.12", path).identity
    assert source.locate("6.12", path).identity == first
    make_tarball(path, {**FILES, "new": "n"})
    assert source.locate("6.12", path).identity != first


def test_changes_are_read_without_what_a_build_leaves(tmp_path: Path) -> None:
    top = tmp_path / "tree" / "mm"
    top.mkdir(parents=True)
    (top / "a.c").write_text("a\n")
    (top / "a.o").write_text("object")
    (top / "program").write_bytes(b"\x7fELF...")
    hooks = tmp_path / "hooks" / "6.12"
    hooks.mkdir(parents=True)
    (hooks / "0002-b.patch").write_text(HOOK)
    (hooks / "0001-a.patch").write_text(HOOK)
    found = read_changes(tmp_path, "6.12", "6.12.9")
    assert list(found.tree) == ["mm/a.c"]
    assert [hook.path.name for hook in found.hooks] == ["0001-a.patch", "0002-b.patch"]
    assert found.hooks[0].touched() == ["mm/migrate.c"]
    before = found.digest()
    (top / "a.c").write_text("b\n")
    assert read_changes(tmp_path, "6.12", "6.12.9").digest() != before


def test_a_base_has_files_of_its_own(tmp_path: Path) -> None:
    for name, text in (
        ("tree/mm/a.c", "for all"),
        ("tree/mm/b.c", "for all"),
        ("only/6.12/mm/b.c", "for one"),
        ("only/6.12/mm/c.c", "for one"),
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    found = {}
    for base in ("6.12", "7.3"):
        (tmp_path / "hooks" / base).mkdir(parents=True)
        files = read_changes(tmp_path, base, f"{base}.9").tree
        found[base] = {name: file.content.decode() for name, file in files.items()}
    assert found == {
        "6.12": {"mm/a.c": "for all", "mm/b.c": "for one", "mm/c.c": "for one"},
        "7.3": {"mm/a.c": "for all", "mm/b.c": "for all"},
    }
