# SPDX-License-Identifier: GPL-2.0-only
"""Make the Debian package of the tool, and check it with lintian.

    make_deb.py DIR   put the package into DIR

The build runs in a copy, so that the checkout stays clean. The environment of `make
setup` makes the manual pages. Debian 12 lacks python3-msgspec. There the script makes
that package, too, from the wheel on PyPI.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent

# Hints are shown, too, and fail nothing.
_LEVELS = ("--display-info", "--fail-on", "error,warning")
# Debian 13's release, and a version that Debian 13's package replaces.
_MSGSPEC = "0.19.0"
_MSGSPEC_VERSION = f"{_MSGSPEC}-1~pageferry1"


def copy_sources(target: Path) -> None:
    """Copy the files that git knows, or all files of an export."""
    listed = subprocess.run(
        ["git", "ls-files", "-z"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if listed.returncode != 0:
        shutil.copytree(ROOT, target, ignore=shutil.ignore_patterns("dist", "build"))
        return
    for name in filter(None, listed.stdout.split("\0")):
        if (ROOT / name).is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, target / name)


def run(argv: list[str], cwd: Path) -> bool:
    """Run a program, with its output on stderr: stdout is for the answer."""
    # Debian's tools and Python come before those of the environment.
    environment = {
        **os.environ,
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHON": sys.executable,
        "LC_ALL": "C.UTF-8",
    }
    environment.pop("PYTHONPATH", None)
    done = subprocess.run(
        argv, cwd=cwd, env=environment, stdout=sys.stderr, check=False
    )
    return done.returncode == 0


def build(target: Path) -> list[Path]:
    """Build and check the packages; returns their files, or none after a failure."""
    target.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="pageferry-deb-") as scratch:
        tree = Path(scratch, "pageferry")
        copy_sources(tree)
        if not run(["dpkg-buildpackage", "-b", "-us", "-uc", "-d"], tree):
            return []
        (changes,) = Path(scratch).glob("*.changes")
        if not run(["lintian", "--allow-root", *_LEVELS, str(changes)], tree):
            return []
        if lacks_msgspec() and not package_msgspec(Path(scratch)):
            return []
        made = sorted(Path(scratch).glob("*.deb"))
        return [Path(shutil.copy2(package, target)) for package in made]


def lacks_msgspec() -> bool:
    """Say whether this Debian has no package python3-msgspec."""
    argv = ["apt-cache", "show", "python3-msgspec"]
    return subprocess.run(argv, capture_output=True, check=False).returncode != 0


def package_msgspec(scratch: Path) -> bool:
    """Make the package python3-msgspec for this Debian's Python."""
    root = scratch / "python3-msgspec"
    modules = root / "usr/lib/python3/dist-packages"
    pip = [sys.executable, "-m", "pip", "install", "-q", "--no-deps", "--no-compile"]
    pip += ["--disable-pip-version-check", "--only-binary=:all:", "--target"]
    if not run([*pip, str(modules), f"msgspec=={_MSGSPEC}"], scratch):
        return False
    (licence,) = modules.glob("msgspec-*.dist-info/**/LICENSE")
    (root / "usr/share/doc/python3-msgspec").mkdir(parents=True)
    shutil.copy2(licence, root / "usr/share/doc/python3-msgspec/copyright")
    major, minor = sys.version_info[:2]
    asked = ["dpkg", "--print-architecture"]
    arch = subprocess.run(asked, capture_output=True, text=True, check=True).stdout
    (root / "DEBIAN").mkdir()
    (root / "DEBIAN/control").write_text(
        f"Package: python3-msgspec\nVersion: {_MSGSPEC_VERSION}\n"
        f"Architecture: {arch.strip()}\nSection: python\nPriority: optional\n"
        f"Depends: libc6, python3 (>= {major}.{minor}), python3 (<< {major}.{minor + 1})\n"
        "Maintainer: pageferry maintainers <maintainers@users.noreply.a-seed-9ce92c1e.example>\n"
        "Description: fast validation and serialization for Python\n"
        " A library that pageferry uses. Debian 13 has a package of its own, which\n"
        " replaces this one.\n"
    )
    build_it = ["dpkg-deb", "--root-owner-group", "--build", str(root), str(scratch)]
    return run(build_it, scratch)


def main(arguments: list[str]) -> int:
    """Make the packages, and print their paths."""
    if len(arguments) != 1:
        print(__doc__, file=sys.stderr)
        return 2
    packages = build(Path(arguments[0]).resolve())
    for package in packages:
        print(package)
    if not packages:
        print("pageferry: the package was not made, see above", file=sys.stderr)
    return 0 if packages else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
