# SPDX-License-Identifier: GPL-2.0-only
"""The Debian package of the tool works without the checkout."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pageferry

ROOT = Path(__file__).resolve().parents[2]
VERSION = pageferry.__version__


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The packages of `make deb`, which lintian has checked."""
    target = tmp_path_factory.mktemp("dist")
    done = subprocess.run(
        [sys.executable, ROOT / "scripts/make_deb.py", target],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [Path(line) for line in done.stdout.splitlines()]


@pytest.fixture(scope="module")
def unpacked(made: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of all packages, in a directory."""
    root = tmp_path_factory.mktemp("root")
    for package in made:
        subprocess.run(["dpkg-deb", "-x", package, root], check=True)
    return root


def run(root: Path, *argv: str) -> subprocess.CompletedProcess[str]:
    """Run the unpacked tool with an environment that knows no checkout."""
    modules = root / "usr/lib/python3/dist-packages"
    # This Python has msgspec, if this Debian has a package for it.
    python = [sys.executable, "-P", str(root / "usr/bin/pageferry")]
    return subprocess.run(
        [*python, *argv],
        cwd=root,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "HOME": str(root / "home"),
            "PYTHONPATH": str(modules),
            "LANG": "C.UTF-8",
        },
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_package_of_the_tool_is_for_all_machines(made: list[Path]) -> None:
    names = [path.name for path in made]
    assert f"pageferry_{VERSION}_all.deb" in names
    # Debian 12 has no python3-msgspec.
    assert len(names) == 1 or names[1].startswith("python3-msgspec_")


@pytest.mark.parametrize(
    "name",
    [
        "usr/share/man/man1/pageferry.1.gz",
        "usr/share/man/man1/pageferry-kernel-package.1.gz",
        "usr/share/bash-completion/completions/pageferry",
        "usr/share/zsh/vendor-completions/_pageferry",
        "usr/share/fish/vendor_completions.d/pageferry.fish",
        "usr/share/doc/pageferry/examples/balance.toml",
        "usr/share/doc/pageferry/docs/how-to/production.md",
        "usr/libexec/pageferry/pageferry-boot",
        "etc/default/pageferry",
        "*/systemd/system/pageferry-engine.service",
        "*/systemd/system/pageferry-balance.service",
        "*/systemd/system/pageferry-tier.service",
    ],
)
def test_the_package_has_the_file(unpacked: Path, name: str) -> None:
    assert [*unpacked.glob(name), *unpacked.glob(f"usr/{name}")] != []


def test_units_are_off_after_installation(made: list[Path], tmp_path: Path) -> None:
    subprocess.run(["dpkg-deb", "-e", made[0], tmp_path], check=True)
    script = (tmp_path / "postinst").read_text()
    assert "deb-systemd-invoke" not in script
    # An upgrade does not stop an engine that copies.
    assert not (tmp_path / "preinst").exists()
    # debhelper asks this before it enables a unit again that an administrator enabled.
    assert script.count("deb-systemd-helper debian-installed") == 3


def test_commands_that_need_no_files(unpacked: Path) -> None:
    assert run(unpacked, "--version").stdout == f"pageferry {VERSION}\n"
    assert "kernel package" in run(unpacked, "kernel", "package", "--help").stdout
    replay = ["balance", "--replay", "two-copies", "--bandwidth", "0=72,1=26"]
    assert "0=3,1=1" in run(unpacked, *replay).stdout
    status = run(unpacked, "status", "--json")
    assert status.returncode in (0, 3) and isinstance(json.loads(status.stdout), dict)


def test_commands_that_need_linux_and_bench(unpacked: Path) -> None:
    listed = run(unpacked, "kernel", "build", "--config", "list")
    assert "distribution" in listed.stdout.split(), listed.stderr
    doctor = run(unpacked, "doctor", "--json")
    assert json.loads(doctor.stdout)["checks"][0]["name"] == "packages"
    build = run(unpacked, "kernel", "build", "--dry-run")
    assert build.returncode == 0, build.stderr
    assert f"apply {unpacked}/usr/share/pageferry/linux/hooks/" in build.stdout
    bench = run(unpacked, "bench", "move-pages", "--vm", "--dry-run")
    assert bench.returncode == 0, bench.stderr
