# SPDX-License-Identifier: GPL-2.0-only
"""The hooks apply to every Linux 6.12 that Debian 12 and 13 offer today.

The first run downloads 150 MB for each. Later runs only check for new ones.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from helpers.debian import CannotAskError, Debian, mirrors
from pageferry.errors import PageferryError
from pageferry.kernel import hooks
from pageferry.kernel.bases import point
from pageferry.kernel.samples import Sample, take_sample
from pageferry.kernel.source import locate

LINUX = Path(__file__).resolve().parents[2] / "linux"
HOOKS = LINUX / "hooks" / "6.12"
FIRST = 90


def replaced() -> list[dict[str, str | list[str]]]:
    """Read the list of Linux's functions that ours replace."""
    table = tomllib.loads((HOOKS / "replaced.toml").read_text())
    functions = table["function"]
    assert isinstance(functions, list)
    return functions


def function_text(text: str, name: str) -> str:
    """Cut a function out of a file."""
    pattern = rf"^(?:static )?[\w *]*\b{name}\((?:[^;{{]|\n)*\n\{{\n.*?^\}}\n"
    match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert match is not None, name
    return match[0]


@pytest.fixture(scope="module")
def offers() -> Mapping[str, Sample]:
    """A few files of each, by the version of the package."""
    try:
        debian = Debian()
    except CannotAskError as why:
        pytest.skip(f"Debian cannot be asked what it offers: {why}")
    versions = debian.offered()
    debian.forget_others(versions)
    names = {str(function["file"]) for function in replaced()}
    names.update(hooks.all_touched(HOOKS))
    samples = {
        version: take_sample(locate("6.12", debian.tarball(version)), names)
        for version in versions
    }
    assert samples, "Debian offers none"
    return {v: s for v, s in samples.items() if point(s.version) >= FIRST}


def test_the_hooks_apply_without_fuzz(offers: Mapping[str, Sample]) -> None:
    failed = {}
    for version, sample in offers.items():
        try:
            sample.check(hooks.read_changes(LINUX, "6.12", sample.version))
        except PageferryError as error:
            failed[version] = error.line()
    assert failed == {}
    assert {"6.12.117", "6.12.118"} <= {sample.version for sample in offers.values()}


@pytest.mark.parametrize("function", replaced(), ids=lambda f: str(f["name"]))
def test_what_ours_stands_in_for_did_not_change(
    offers: Mapping[str, Sample], function: dict[str, str | list[str]]
) -> None:
    """A hook that calls our function still applies when Linux corrects its own."""
    name, file = str(function["name"]), str(function["file"])
    new = {}
    for sample in offers.values():
        text = function_text((sample.path / file).read_text(), name)
        digest = hashlib.sha256(text.encode()).hexdigest()
        if digest not in function["seen"]:
            new[sample.version] = digest
    if new:
        # Users may run this release. A developer has to look at the change.
        pytest.xfail(
            f"{name}() in {file} is another one than {function['ours']} was compared "
            f"with: does ours need the same change? Then add it to replaced.toml: {new}"
        )


def test_the_mirror_is_that_of_this_machine(tmp_path: Path) -> None:
    parts = tmp_path / "sources.list.d"
    parts.mkdir()
    (tmp_path / "sources.list").write_text(
        "deb [trusted=yes] http://first.example/debian/ trixie main\n"
        "deb http://second.example/debian trixie main\n"
    )
    (parts / "more.sources").write_text(
        "Types: deb\nURIs: https://other.example/x/debian-security\nSuites: y\n"
        "URIs: https://other.example/debian-ports\n"
    )
    assert mirrors(tmp_path) == {
        "debian": "http://first.example/debian",
        "debian-security": "https://other.example/x/debian-security",
    }
    assert mirrors(tmp_path / "none")["debian"] == "http://deb.debian.org/debian"
