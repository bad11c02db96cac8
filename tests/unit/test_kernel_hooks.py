# SPDX-License-Identifier: GPL-2.0-only
"""Selects the hooks for a point release."""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel.hooks import all_touched, choose_hooks, read_changes


def hook(touched: str = "mm/migrate.c") -> str:
    return f"--- a/{touched}\n+++ b/{touched}\n"


@pytest.fixture
def hooks(tmp_path: Path) -> Path:
    """Two hooks, one with two variants, and one for old releases only."""
    top = tmp_path / "hooks" / "6.12"
    for folder in (".", "90-99", "118-"):
        (top / folder).mkdir(parents=True, exist_ok=True)
    (top / "0001-first.patch").write_text(hook())
    (top / "0002-second.patch").write_text(hook())
    (top / "90-99" / "0001-first.patch").write_text(hook("mm/old.c"))
    (top / "118-" / "0001-first.patch").write_text(hook("mm/new.c"))
    (top / "90-99" / "0003-old-only.patch").write_text(hook())
    (tmp_path / "tree").mkdir()
    return top


@pytest.mark.parametrize(
    ("number", "first", "old_only"),
    [
        (89, ".", False),
        (90, "90-99", True),
        (99, "90-99", True),
        (100, ".", False),
        (117, ".", False),
        (118, "118-", False),
        (500, "118-", False),
    ],
)
def test_a_variant_stands_in_for_a_hook_in_its_range(
    hooks: Path, number: int, first: str, old_only: bool
) -> None:
    expected = [hooks / first / "0001-first.patch", hooks / "0002-second.patch"]
    if old_only:
        expected.append(hooks / "90-99" / "0003-old-only.patch")
    assert choose_hooks(hooks, number) == expected


def test_the_release_decides_what_is_read_and_its_digest(hooks: Path) -> None:
    linux = hooks.parents[1]
    old = read_changes(linux, "6.12", "6.12.95")
    usual = read_changes(linux, "6.12", "6.12.117")
    new = read_changes(linux, "6.12", "6.12.118")
    assert [h.touched() for h in new.hooks] == [["mm/new.c"], ["mm/migrate.c"]]
    assert len({old.digest(), usual.digest(), new.digest()}) == 3
    # The release number alone changes nothing, so that one build serves both.
    assert read_changes(linux, "6.12", "6.12.116").digest() == usual.digest()


def test_the_files_of_all_variants_are_known(hooks: Path) -> None:
    assert all_touched(hooks) == ["mm/migrate.c", "mm/new.c", "mm/old.c"]


def test_two_variants_for_one_release_are_refused(hooks: Path) -> None:
    (hooks / "95-").mkdir()
    (hooks / "95-" / "0001-first.patch").write_text(hook())
    assert choose_hooks(hooks, 94)
    with pytest.raises(PageferryError, match=r"0001-first\.patch") as caught:
        choose_hooks(hooks, 95)
    assert caught.value.code == ExitCode.NOT_STARTED


@pytest.mark.parametrize("name", ["old", "-117", "90", "90-99-"])
def test_a_folder_whose_name_is_no_range_is_refused(hooks: Path, name: str) -> None:
    (hooks / name).mkdir()
    with pytest.raises(PageferryError, match="no range"):
        choose_hooks(hooks, 117)
