# SPDX-License-Identifier: GPL-2.0-only
"""The page of libraries names those that the tool declares, and files that exist."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs/reference/dependencies.md").read_text()
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def section(title: str) -> str:
    """Return a section of the page."""
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def declared(requirements: list[str]) -> set[str]:
    return {re.split(r"[<>=]", text)[0] for text in requirements}


def named(text: str) -> set[str]:
    return set(re.findall(r"`([\w-]+)`", text))


def test_each_library_of_the_tool_has_a_row() -> None:
    rows = [row.split("|") for row in section("Libraries of the tool").splitlines()]
    libraries = named("".join(row[2] for row in rows if len(row) > 2))
    assert libraries == declared(PROJECT["dependencies"])


def test_each_library_of_the_tests_has_a_row() -> None:
    wanted = declared(PROJECT["optional-dependencies"]["dev"])
    assert named(section("Libraries of the tests and of the build")) == wanted


def test_code_of_our_own_exists() -> None:
    places = re.findall(r"`([\w/]+(?:\.py|/))`", section("Code of our own"))
    assert len(places) > 5
    for place in places:
        assert (ROOT / "src/pageferry" / place).exists(), place
