# SPDX-License-Identifier: GPL-2.0-only
"""`kernel package` from end to end, on a fake kernel that builds in a moment."""

from __future__ import annotations

import gzip
import json
import lzma
import os
import subprocess
from pathlib import Path

import pytest

from helpers.fake_kernel import make_tarball

from .conftest import Tool

CONFIG = """\
CONFIG_NUMA=y
CONFIG_MIGRATION=y
CONFIG_LOADED=m
CONFIG_NOT_LOADED=m
CONFIG_MODULE_SIG_KEY="debian/key.pem"
"""
VERSION = "6.12.9+pageferry0.1.0-1"


@pytest.fixture
def source(tmp_path: Path) -> Path:
    """A fake kernel that builds."""
    return make_tarball(tmp_path / "linux.tar.xz")


@pytest.fixture
def config(tmp_path: Path) -> Path:
    """The configuration of a distribution."""
    path = tmp_path / "config-of-debian"
    path.write_text(CONFIG)
    return path


@pytest.fixture(autouse=True)
def tools(fake: Tool, tmp_path: Path) -> None:
    """Let debhelper and rsync exist, whatever this machine has."""
    directory = tmp_path / "bin"
    directory.mkdir()
    for name in ("dh_prep", "rsync", "dpkg-buildpackage", "pahole"):
        (directory / name).write_text("#!/bin/sh\n")
        (directory / name).chmod(0o755)
    fake.environment["PATH"] = f"{directory}:{os.environ['PATH']}"


def argv(source: Path, config: Path, target: Path, *more: str) -> list[str | Path]:
    chosen: list[str | Path] = ["--source", source, "--config-from", config]
    return ["kernel", "package", *chosen, "--output", target, *more]


def make(tool: Tool, *words: str | Path) -> dict[str, object]:
    done = tool.run(*words, "--json")
    assert done.returncode == 0, done.stderr
    document = json.loads(done.stdout)
    assert isinstance(document, dict)
    return document


def test_packages_of_kernel_and_headers(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    target = tmp_path / "packages"
    document = make(fake, *argv(source, config, target))
    assert document["release"] == "6.12.9+pageferry"
    assert document["version"] == VERSION
    names = [
        f"linux-{kind}-6.12.9+pageferry_{VERSION}_amd64.deb"
        for kind in ("image", "headers")
    ]
    assert document["packages"] == [str(target / name) for name in names]
    # The C library's headers stay those of the distribution.
    assert sorted(p.name for p in target.iterdir()) == sorted(names)
    assert not list(fake.cache.rglob("*.deb")) + list(fake.cache.rglob("*.changes"))
    built_with = (target / names[0]).read_text()
    for line in ("CONFIG_E=y", "CONFIG_MIGRATE_DCBM=m", "CONFIG_NOT_LOADED=m"):
        assert line in built_with
    assert "key.pem" not in built_with


def test_debug_symbols_and_a_revision(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    more = ("--debug-symbols", "--revision", "7")
    document = make(fake, *argv(source, config, tmp_path / "out", *more))
    packages = document["packages"]
    assert isinstance(packages, list) and len(packages) == 3
    assert packages[2].endswith("+pageferry-dbg_6.12.9+pageferry0.1.0-7_amd64.deb")
    config_of = (tmp_path / "out" / Path(packages[0]).name).read_text()
    assert "# CONFIG_DEBUG_INFO_NONE is not set" in config_of


def test_few_modules_leave_ours(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    document = make(fake, *argv(source, config, tmp_path / "o", "--localmodconfig"))
    packages = document["packages"]
    assert isinstance(packages, list)
    built_with = Path(packages[0]).read_text()
    assert "NOT_LOADED" not in built_with and "CONFIG_LOADED=m" in built_with
    assert "CONFIG_MIGRATE_DCBM=m" in built_with


@pytest.mark.parametrize("suffix", [".gz", ".xz"])
def test_a_compressed_configuration(
    fake: Tool, source: Path, tmp_path: Path, suffix: str
) -> None:
    path = tmp_path / f"config{suffix}"
    pack = gzip.compress if suffix == ".gz" else lzma.compress
    path.write_bytes(pack(CONFIG.encode()))
    document = make(fake, *argv(source, path, tmp_path, "--dry-run"))
    assert document["config"] == str(path)
    path.write_bytes(path.read_bytes()[:20])
    error = fake.fails(2, *argv(source, path, tmp_path, "--dry-run"))
    assert error["value"] == str(path)


def test_a_dry_run_forecasts_and_does_nothing(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    done = fake.run(*argv(source, config, tmp_path / "out", "--dry-run"))
    assert done.returncode == 0, done.stderr
    first = done.stdout.splitlines()[0]
    assert "may take" in first and "GiB of disk in" in first
    assert "bindeb-pkg" in done.stdout and f"KDEB_PKGVERSION={VERSION}" in done.stdout
    assert not (tmp_path / "out").exists()
    assert not list(fake.cache.glob("kernel/6.12*"))


@pytest.mark.parametrize(
    "line",
    [
        "# CONFIG_NUMA is not set",
        "# CONFIG_MIGRATION is not set",
        "# CONFIG_NUMA_MIGRATION is not set",
    ],
)
def test_a_configuration_without_migration(
    fake: Tool, source: Path, tmp_path: Path, line: str
) -> None:
    name = line.split()[1]
    path = tmp_path / "small"
    path.write_text(CONFIG.replace(f"{name}=y\n", "") + line + "\n")
    error = fake.fails(3, *argv(source, path, tmp_path))
    assert error["reason"] == f"it lacks {name}=y" and error["value"] == str(path)


def test_a_part_of_ours_that_the_configuration_cannot_have(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    fragment = fake.home / "checkout/linux/configs/distribution.config"
    fragment.write_text("CONFIG_REFUSED_MODULE=m\n")
    done = fake.run(*argv(source, config, tmp_path / "out"))
    assert done.returncode == 0
    assert "warning" in done.stderr and "CONFIG_REFUSED_MODULE" in done.stderr
    fragment.write_text("CONFIG_REFUSED=y\n")
    error = fake.fails(5, *argv(source, config, tmp_path / "out"))
    assert "CONFIG_REFUSED=y" in error["reason"]


def test_a_small_disk_is_noticed_before_the_build(
    fake: Tool, source: Path, tmp_path: Path
) -> None:
    huge = tmp_path / "huge"
    symbols = "".join(f"CONFIG_X{number}=y\n" for number in range(10_000_000 // 50))
    huge.write_text(CONFIG + "CONFIG_DEBUG_INFO=y\nCONFIG_DEBUG_INFO_BTF=y\n" + symbols)
    error = fake.fails(5, *argv(source, huge, tmp_path))
    assert "GiB needed" in error["reason"]
    assert "XDG_CACHE_HOME" in error["hint"] and "--localmodconfig" in error["hint"]
    assert not list(fake.cache.glob("kernel/6.12*[!k]"))


def test_a_failed_build(fake: Tool, config: Path, tmp_path: Path) -> None:
    bad = make_tarball(tmp_path / "bad.tar.xz", behave="fail")
    error = fake.fails(5, *argv(bad, config, tmp_path / "out"))
    assert "error: no such thing" in error["detail"]


def test_what_is_missing_is_named_with_its_package(
    fake: Tool, source: Path, config: Path, tmp_path: Path
) -> None:
    tools = tmp_path / "few"
    tools.mkdir()
    for directory in fake.environment["PATH"].split(":"):
        for program in Path(directory).glob("*"):
            link = tools / program.name
            if program.name != "dh_prep" and not link.exists():
                link.symlink_to(program)
    error = fake.fails(3, *argv(source, config, tmp_path), PATH=str(tools))
    assert error["hint"] == "apt-get install debhelper"


@pytest.mark.parametrize(
    ("more", "value"),
    [(("--jobs", "0"), "0"), (("--revision", "-1"), "-1"), (("--base", "9.9"), "9.9")],
)
def test_wrong_options(
    fake: Tool, source: Path, config: Path, more: tuple[str, str], value: str
) -> None:
    error = fake.fails(2, *argv(source, config, Path(), *more))
    assert error["value"] == value


@pytest.mark.parametrize("theirs", ["6.12.9-1", "6.12.9-1~deb12u1", "6.12.9-3+b1"])
def test_dpkg_sorts_ours_after_the_distributions(theirs: str) -> None:
    compared = ["dpkg", "--compare-versions", VERSION, "gt", theirs]
    assert subprocess.run(compared, check=False).returncode == 0
    below = ["dpkg", "--compare-versions", VERSION, "lt", "6.12.10-1"]
    assert subprocess.run(below, check=False).returncode == 0


def test_the_boot_menu_sorts_ours_first() -> None:
    """GRUB uses sort -V, and boots the highest."""
    names = ["6.12.9+pageferry", "6.12.9+deb13-amd64", "6.12.9+deb12-amd64"]
    done = subprocess.run(
        ["sort", "-V"],
        input="\n".join(names),
        env={**os.environ, "LC_ALL": "C"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split()[-1] == "6.12.9+pageferry"
