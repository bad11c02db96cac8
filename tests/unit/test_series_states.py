# SPDX-License-Identifier: GPL-2.0-only
"""The files after each patch of a series, and mistakes in its description."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from helpers.fake_series import EVERYTHING, LATER, PRISTINE, add_series
from pageferry.errors import PageferryError
from pageferry.kernel.hooks import Hook, WantedFile, read_changes, wanted_files
from pageferry.kernel.series import spec
from pageferry.kernel.series.lines import Growing, blocks
from pageferry.kernel.series.states import Files, states
from pageferry.kernel.series.steps import directories, selftests
from pageferry.kernel.series.weave import Weave, parse

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def linux(tmp_path: Path) -> Path:
    """A directory linux with three series."""
    add_series(tmp_path / "linux")
    return tmp_path / "linux"


@pytest.fixture
def pristine(tmp_path: Path) -> Callable[[str], Path | None]:
    """The files of the base release."""
    for name, text in PRISTINE.items():
        path = tmp_path / "base" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def find(name: str) -> Path | None:
        path = tmp_path / "base" / name
        return path if path.is_file() else None

    return find


Pristine = Callable[[str], Path | None]


def after_each(linux: Path, name: str, pristine: Pristine) -> list[Files]:
    series = spec.read(linux, name)
    changes = read_changes(linux, "6.12", "6.12.9")
    patches = [*series.earlier_patches("6.12"), *series.patches("6.12")]
    return states(series, patches, "6.12", changes, pristine)


def texts(files: Files) -> dict[str, str]:
    return {name: file.content.decode() for name, file in files.items()}


def test_the_last_state_is_the_tree_of_a_build(linux: Path, pristine: Pristine) -> None:
    after = after_each(linux, "everything", pristine)
    changes = read_changes(linux, "6.12", "6.12.9")
    assert after[-1] == wanted_files(changes, pristine)


def test_each_state_has_the_chosen_changes_alone(
    linux: Path, pristine: Pristine
) -> None:
    first, second, last = map(texts, after_each(linux, "everything", pristine))
    assert first.keys() == {"mm/migrate.c"}
    expected = PRISTINE["mm/migrate.c"].replace("line 21", "first late")
    assert first["mm/migrate.c"] == expected.replace("line 9\n", "second middle\n")
    assert second["mm/migrate.c"] == first["mm/migrate.c"]
    assert second["drivers/Makefile"] == "obj-y := old/\nobj-y += new/\n"
    assert second["drivers/new/Makefile"] == "# head\n\nobj-y += one.o\n"
    assert second["drivers/new/Kconfig"] == "# head\n\nconfig ONE\n\tbool\n"
    assert "drivers/new/two.c" not in second and "mm/made.h" not in second
    assert "second late" in last["mm/migrate.c"] and last["mm/made.h"] == "made\n"


def test_a_series_may_have_diffs_and_files_of_its_own(
    linux: Path, pristine: Pristine
) -> None:
    (only,) = map(texts, after_each(linux, "own", pristine))
    assert only["mm/migrate.c"].startswith("own\nline 2\n")
    assert only["mm/own.c"] == "own\n"


def test_a_series_builds_on_others(linux: Path, pristine: Pristine) -> None:
    first, last = map(texts, after_each(linux, "later", pristine))
    assert first == texts(after_each(linux, "own", pristine)[0])
    assert last["mm/migrate.c"].startswith("own\nline 2\nline 3\nfirst early\n")
    assert last.keys() == first.keys()


def test_each_earlier_series_counts_once(linux: Path) -> None:
    path = linux / "series/last.toml"
    path.write_text(LATER.replace('["own"]', '["later", "own"]'))
    series = spec.read(linux, "last")
    assert [earlier.name for earlier in series.earlier] == ["own", "later"]
    assert len(series.earlier_patches("6.12")) == 2


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        ('["none"]', "unknown series: none"),
        ('["later"]', "after itself: later"),
        ('["last"]', "after itself: later after last"),
    ],
)
def test_a_wrong_order_of_series_is_reported(
    linux: Path, after: str, expected: str
) -> None:
    (linux / "series/later.toml").write_text(LATER.replace('["own"]', after))
    (linux / "series/last.toml").write_text(LATER.replace('["own"]', '["later"]'))
    with pytest.raises(PageferryError, match="damaged") as caught:
        spec.read(linux, "later")
    assert expected in caught.value.line()


def test_a_base_that_an_earlier_series_lacks_is_refused(linux: Path) -> None:
    later = LATER.replace('["6.12"]', '["6.12", "7.3"]')
    (linux / "series/later.toml").write_text(later)
    with pytest.raises(PageferryError, match=r"own is for: 6\.12"):
        spec.for_base(spec.read(linux, "later"), "7.3")


REST = """
[[patch]]
subject = "everything else"
message = "Say why."
rest = true
"""


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ('hunks = ["late"]', "hunks = [7]", "no such part"),
        ('hunks = ["late"]', 'hunks = ["nowhere"]', "no such part"),
        ('hook = "0001-first"', 'hook = "0009-none"', "no such hook"),
        ('file = "drivers/Makefile"', 'file = "mm/none.c"', "no such part"),
        ("hunks = [1]", "hunks = [1, 1]", None),
        ("hunks = [1]", 'hunks = ["line"]', None),
        (
            '{ hook = "0001-first", file = "mm/migrate.c", hunks = ["late"] }',
            '{ hook = "0002-second", file = "mm/migrate.c", hunks = [2] }',
            "too early",
        ),
        (
            '{ hook = "0002-second", file = "drivers/Makefile" }',
            '{ hook = "0001-first", hunks = ["late"] }',
            "same change",
        ),
        ('match = ["one.o"]', 'match = ["three.o"]', "not left"),
        ('tree = ["drivers/new/one.c"]', 'tree = ["drivers/newer/*"]', "not left"),
        ("rest = true", 'tree = ["drivers/new/two.c"]', "contain everything"),
        ("rest = true", "", "changes nothing"),
        ("rest = true", 'diffs = ["none.patch"]', "no such file"),
        ('title = "all of it"', "title = 1", "damaged"),
        ("rest = true", "remains = true", "damaged"),
        ('message = "Say why."', 'message = "Signed-off-by: X <x@y>"', "signs off"),
        ('subject = "everything else"', 'subject = ""', "one line"),
        ("rest = true", 'rest = true\nbases = ["7.3"]', "no base 7.3"),
    ],
)
def test_mistakes_are_reported(
    linux: Path, pristine: Pristine, old: str, new: str, expected: str | None
) -> None:
    assert old in EVERYTHING
    path = linux / "series/everything.toml"
    path.write_text(EVERYTHING.replace(old, new))
    if expected is None:
        after_each(linux, "everything", pristine)
        return
    with pytest.raises(PageferryError) as caught:
        after_each(linux, "everything", pristine)
    assert expected in caught.value.line() and "\n" not in caught.value.line()


def test_an_unknown_series_or_base_is_refused(linux: Path) -> None:
    with pytest.raises(PageferryError, match="unknown series") as caught:
        spec.read(linux, "none")
    assert "everything, later, own" in str(caught.value)
    with pytest.raises(PageferryError, match="not for this base"):
        spec.for_base(spec.read(linux, "own"), "7.3")


def test_a_weave_knows_every_state() -> None:
    hook = b"--- a/x\n+++ b/x\n@@ -1,3 +1,3 @@\n-a\n+A\n b\n-c\n\\ No newline\n+c\n"
    weave = Weave.begin("x", b"a\nb\nc")
    (hunk,) = parse("hook", hook)
    weave.apply([hunk])
    assert weave.state(()) == b"a\nb\nc"
    assert weave.state({hunk.unit}) == b"A\nb\nc\n"
    with pytest.raises(PageferryError, match="does not apply"):
        weave.apply(parse("hook", b"+++ b/x\n@@ -1 +1 @@\n-z\n+y\n"))


def test_a_makefile_is_divided_into_logical_lines() -> None:
    text = "# head\nobj-y := a.o \\\n\tb.o\n# for c\n\nobj-y += c.o\n# tail\n"
    found = blocks("mm/Makefile", text)
    assert [len(block.lines) for block in found] == [1, 2, 3, 1]
    growing = Growing("mm/Makefile", text.encode(), executable=False)
    assert growing.take(0, "c.o") and not growing.take(0, "c.o")
    assert growing.state(0) == b"# head\n# for c\n\nobj-y += c.o\n"
    assert growing.take_rest(1) and growing.state(1) == text.encode()


def test_the_directories_to_build() -> None:
    has = {"mm/Makefile", "mm/damon/Makefile", "kernel/sched/Makefile"}
    names = ["mm/damon/core.c", "mm/migrate.c", "mm/x/tests/y.c", "include/linux/z.h"]
    assert directories(names, has) == ["mm/"]
    assert directories(names[:1], has) == ["mm/damon/"]
    assert directories(["mm/Kconfig", "x.c", "tools/x.c", "drivers/x.c"], has) == []


def test_only_new_suites_of_selftests_are_built_as_a_whole() -> None:
    def files(*names: str) -> Files:
        return {name: WantedFile(b"") for name in names}

    top = "tools/testing/selftests"
    new = files(f"{top}/new/Makefile", f"{top}/new/a/b.c")
    now = new | files(f"{top}/mm/x.c", f"{top}/mm/Makefile", "mm/x.c")
    now |= files(f"{top}/Makefile", f"{top}/kvm/Makefile")
    had = {f"{top}/Makefile", f"{top}/mm/Makefile", f"{top}/kvm/Makefile"}
    assert selftests(now, {}, had) == {f"{top}/mm": ["x"], f"{top}/new": []}
    assert selftests(now, now, had) == {}


def _wrapped(lines: list[str]) -> list[str]:
    """Leave out tags, which may be long."""
    return [line for line in lines if not line.startswith(("Fixes: ", "Link: "))]


def test_our_own_series_are_in_order() -> None:
    linux = ROOT / "linux"
    for name in spec.names(linux):
        series = spec.read(linux, name)
        for base in series.bases:
            for patch in series.patches(base):
                lines = patch.message.splitlines()
                assert max(map(len, [patch.subject, *_wrapped(lines)])) <= 75
                for diff in patch.diffs:
                    path = patch.directory / base / diff
                    assert Hook(path, path.read_bytes()).touched()
                for file in patch.files:
                    assert (patch.directory / "tree" / file).is_file()
