# SPDX-License-Identifier: GPL-2.0-only
"""Our own bases: their descriptions, and each hook by itself and on a source."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from helpers.sources import LINUX, found
from pageferry import proc
from pageferry.kernel import bases, hooks, origin

BASES = bases.names(LINUX)
HOOKS = found(LINUX / "hooks", "**/*.patch")


def of(base: str) -> dict[str, str]:
    """Map the hooks of a base to their subjects."""
    return hooks.subjects(LINUX / "hooks" / base)


def test_each_directory_is_a_base() -> None:
    for top in ("hooks", "only"):
        assert {path.name for path in (LINUX / top).glob("*")} <= set(BASES)
    assert bases.DEFAULT in BASES


@pytest.mark.parametrize("name", BASES)
def test_the_description_is_well_formed(name: str) -> None:
    base = bases.read(LINUX, name)
    assert base.package == f"linux-source-{name}"
    releases = [base.oldest, *base.works, *base.sha256]
    assert all(re.fullmatch(rf"{re.escape(name)}\.\d+", one) for one in releases)
    assert sorted(base.works, key=bases.point) == list(base.works)
    assert all(bases.point(one) >= bases.point(base.oldest) for one in releases)
    assert all(re.fullmatch("[0-9a-f]{64}", text) for text in base.sha256.values())


@pytest.mark.parametrize("name", BASES)
def test_no_feature_gets_lost_on_a_newer_base(name: str) -> None:
    """A hook of an older base has a counterpart, or the newer base has the feature."""
    base, ours = bases.read(LINUX, name), of(name)
    others = {hook for other in BASES if other != name for hook in of(other)}
    assert base.has.keys() <= others - ours.keys()
    older = {hook for other in BASES[: BASES.index(name)] for hook in of(other)}
    assert older <= ours.keys() | base.has.keys()


@pytest.mark.parametrize("path", HOOKS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_a_hook_is_numbered_and_parses(path: Path) -> None:
    assert re.fullmatch(r"\d{4}-[a-z0-9-]+\.patch", path.name)
    head, _, patch = path.read_text().partition("\n---\n")
    assert re.match(r"Subject: \S.{,71}\n\n\S", head), head[:200]
    # git counts the lines of each hunk, and needs no tree for this.
    counted = proc.capture(["git", "apply", "--numstat", path])
    assert counted.returncode == 0, counted.stderr
    touched = [line.split("\t")[2] for line in counted.stdout.splitlines()]
    assert sorted(touched) == sorted(hooks.Hook(path, patch.encode()).touched())


@pytest.mark.parametrize("name", BASES)
def test_numbers_and_variants_are_unique(name: str) -> None:
    numbers = [hook[:4] for hook in of(name)]
    assert len(set(numbers)) == len(numbers)
    for number in range(200):
        hooks.choose_hooks(LINUX / "hooks" / name, number)


@pytest.mark.parametrize("name", BASES)
def test_the_hooks_apply(name: str) -> None:
    if origin.at_hand(bases.read(LINUX, name)) is None:
        pytest.skip(f"no source of Linux {name} on this machine")
    chosen = origin.choose(LINUX, name, None, vanilla=False, fetch=False)
    assert chosen.version.startswith(f"{name}.")
    assert chosen.changes.hooks
