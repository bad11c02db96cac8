# SPDX-License-Identifier: GPL-2.0-only
"""The hooks apply to every release of each base that Debian offers today.

The first run downloads 150 MB for each. Later runs only check for new ones.
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from pathlib import Path

import pytest

from pageferry import paths
from pageferry.errors import PageferryError
from pageferry.kernel import bases, hooks
from pageferry.kernel.bases import point
from pageferry.kernel.debian import Archive, mirrors
from pageferry.kernel.samples import Sample, take_sample
from pageferry.kernel.series import spec, states
from pageferry.kernel.source import locate

LINUX = Path(__file__).resolve().parents[2] / "linux"
BASES = bases.names(LINUX)
Function = dict[str, str | list[str]]


def replaced(base: str) -> list[Function]:
    """Read the list of Linux's functions that ours replace."""
    path = LINUX / "hooks" / base / "replaced.toml"
    functions = tomllib.loads(path.read_text())["function"] if path.exists() else []
    assert isinstance(functions, list)
    return functions


def function_text(text: str, name: str) -> str:
    """Cut a function out of a file."""
    pattern = rf"^(?:static )?[\w *]*\b{name}\((?:[^;{{]|\n)*\n\{{\n.*?^\}}\n"
    match = re.search(pattern, text, re.MULTILINE | re.DOTALL)
    assert match is not None, name
    return match[0]


@pytest.fixture(scope="module")
def offers(request: pytest.FixtureRequest) -> Mapping[str, Sample]:
    """A few files of each offer for a base, by the version of the package."""
    base = bases.read(LINUX, request.param)
    try:
        archive = Archive(base.package, base.suites)
    except PageferryError as error:
        pytest.skip(error.line())
    versions = archive.offered()
    if not versions:
        pytest.skip(f"Debian offers no {base.package}")
    kept = paths.make_cache_dir("debian-sources", "tarballs")
    tarballs = {version: kept / f"{version}.tar.xz" for version in versions}
    # Remove those that Debian no longer offers.
    for path in set(kept.glob(f"{base.name}.*")) - set(tarballs.values()):
        path.unlink()
    for version, path in tarballs.items():
        if path.exists():
            continue
        try:
            archive.download(version, path)
        except PageferryError as error:
            pytest.skip(error.line())
    names = {str(function["file"]) for function in replaced(base.name)}
    names.update(hooks.all_touched(LINUX / "hooks" / base.name))
    for name in spec.names(LINUX):
        series = spec.read(LINUX, name)
        names.update(
            file
            for diff in states.diffs(series.patches(base.name), base.name)
            for file in diff.touched()
        )
    samples = {
        version: take_sample(locate(base.name, path), names)
        for version, path in tarballs.items()
    }
    oldest = point(base.oldest)
    return {v: s for v, s in samples.items() if point(s.version) >= oldest}


@pytest.mark.parametrize(
    ("offers", "base"), [(b, b) for b in BASES], indirect=["offers"]
)
def test_the_hooks_apply_without_fuzz(offers: Mapping[str, Sample], base: str) -> None:
    failed = {}
    for version, sample in offers.items():
        try:
            sample.check(hooks.read_changes(LINUX, base, sample.version))
        except PageferryError as error:
            failed[version] = error.line()
    assert failed == {}
    assert offers


@pytest.mark.parametrize(
    ("offers", "base", "name"),
    [
        (base, base, name)
        for name in spec.names(LINUX)
        for base in spec.read(LINUX, name).bases
        if base in BASES
    ],
    indirect=["offers"],
)
def test_the_series_apply(offers: Mapping[str, Sample], base: str, name: str) -> None:
    """The last state of the series with everything is the tree of a build."""
    series = spec.read(LINUX, name)
    for sample in offers.values():
        top = sample.path

        def pristine(file: str, top: Path = top) -> Path | None:
            return top / file if (top / file).is_file() else None

        changes = hooks.read_changes(LINUX, base, sample.version)
        patches = [*series.earlier_patches(base), *series.patches(base)]
        assert len(states.states(series, patches, base, changes, pristine)) > 0


@pytest.mark.parametrize(
    ("offers", "function"),
    [(base, function) for base in BASES for function in replaced(base)],
    indirect=["offers"],
    ids=lambda value: value if isinstance(value, str) else str(value["name"]),
)
def test_what_ours_stands_in_for_did_not_change(
    offers: Mapping[str, Sample], function: Function
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
