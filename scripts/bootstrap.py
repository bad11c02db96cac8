#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-only
"""Install Debian packages, and make the Python environment (venv) of pageferry.

This script uses only the standard library, because it runs before any installation.

    bootstrap.py launch ARGS...   make the venv if needed, then run the tool
    bootstrap.py setup            packages and the venv with the test tools
    bootstrap.py python           print the venv's interpreter
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).resolve().parent.parent
REQUIREMENTS = ROOT / "requirements"
EXIT_UNSUPPORTED = 3
EXIT_NOT_STARTED = 5
EXIT_INTERRUPTED = 130


def fail(message: str, hint: str, code: int = EXIT_UNSUPPORTED) -> NoReturn:
    """Print an error and a hint, and exit."""
    print(f"pageferry: {message}\n  try: {hint}", file=sys.stderr)
    raise SystemExit(code)


def cache_dir() -> Path:
    """Return the cache directory, like pageferry.paths."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(base) if base.startswith("/") else Path.home() / ".cache"
    return root / "pageferry"


def wanted_packages() -> list[str]:
    """Read the lists of Debian packages."""
    texts = [(REQUIREMENTS / f"{name}.txt").read_text() for name in ("apt", "apt-dev")]
    lines = "".join(texts).splitlines()
    return [line for line in lines if line and not line.startswith("#")]


def missing_packages(wanted: list[str]) -> list[str]:
    """List the packages that dpkg does not know as installed."""
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    answer = subprocess.run(query, capture_output=True, text=True, check=False)
    installed = {
        line.split()[0]
        for line in answer.stdout.splitlines()
        if line.split()[1:] == ["installed"]
    }
    return [name for name in wanted if name not in installed]


def install_packages(wanted: list[str]) -> None:
    """Install missing packages as root; other users get the command to run."""
    if shutil.which("dpkg-query") is None:
        fail(
            "this is not a Debian system, so its packages have other names",
            f"install the content of these Debian packages: {' '.join(wanted)}",
        )
    missing = missing_packages(wanted)
    if not missing:
        return
    install = ["apt-get", "install", "-y", "--no-install-recommends", *missing]
    if os.geteuid() != 0:
        fail(f"packages are missing: {' '.join(missing)}", "sudo " + " ".join(install))
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    print(f"installing: {' '.join(missing)}", file=sys.stderr)
    for command in (["apt-get", "update", "-qq"], [*install, "-qq"]):
        # Our stdout is for answers, so apt writes to stderr.
        done = subprocess.run(command, env=env, stdout=sys.stderr, check=False)
        if done.returncode != 0 and command[1] == "install":
            fail(
                f"apt-get ended with {done.returncode} and did not install: "
                + " ".join(missing),
                "check the network and /etc/apt/sources.list, then run it again;"
                " Debian 12 has linux-source-6.12 in bookworm-security",
            )


def venv_dir() -> Path:
    """Return the venv of this interpreter and these pinned versions."""
    pins = (REQUIREMENTS / "run.txt").read_bytes()
    pins += (REQUIREMENTS / "dev.txt").read_bytes()
    identity = f"{sys.version}\0{sys.base_prefix}\0".encode() + pins
    name = hashlib.sha256(identity).hexdigest()[:12]
    return cache_dir() / f"venv-{sys.version_info[0]}.{sys.version_info[1]}-{name}"


def make_venv(venv: Path) -> None:
    """Create an empty venv, and install python3-venv first if it is missing."""
    try:
        import ensurepip  # noqa: F401
    except ImportError:
        install_packages(["python3-venv"])
    shutil.rmtree(venv, ignore_errors=True)
    command = [sys.executable, "-m", "venv", str(venv)]
    done = subprocess.run(command, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        fail(
            f"cannot make a Python environment in {venv}",
            "apt-get install python3-venv",
            EXIT_NOT_STARTED,
        )


def install_requirements(venv: Path, name: str) -> None:
    """Install a pinned list into the venv, unless that is done."""
    stamp = venv / f".{name}.done"
    if stamp.exists():
        return
    listing = REQUIREMENTS / f"{name}.txt"
    print(f"installing Python packages of {listing.name} ...", file=sys.stderr)
    pip = [str(venv / "bin/python"), "-m", "pip", "install", "-q"]
    pip += ["--disable-pip-version-check", "-r", str(listing)]
    done = subprocess.run(pip, stdout=sys.stderr, check=False)
    if done.returncode != 0:
        fail(
            f"pip ended with {done.returncode} on {listing}",
            "check the network (or PIP_INDEX_URL) and the disk, then run it again",
            EXIT_NOT_STARTED,
        )
    stamp.touch()


def ensure_venv(*names: str) -> Path:
    """Return a venv with the pinned lists, and make it if needed."""
    venv = venv_dir()
    if all((venv / f".{name}.done").exists() for name in names):
        return venv
    try:
        venv.parent.mkdir(parents=True, exist_ok=True)
        with (venv.parent / "venv.lock").open("w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            # Without the stamp of run.txt the venv is missing or incomplete.
            if not (venv / ".run.done").exists():
                make_venv(venv)
            for name in names:
                install_requirements(venv, name)
    except OSError as error:
        fail(
            f"cannot make {venv}: {error.strerror}",
            "free some space, or set XDG_CACHE_HOME to a writable directory",
            EXIT_NOT_STARTED,
        )
    return venv


def leave_link(venv: Path) -> None:
    """Let ./pageferry find the venv by itself the next time."""
    link = venv.parent / "venv"
    scratch = venv.parent / f".venv-{os.getpid()}"
    # A read-only cache has no link.
    with contextlib.suppress(OSError):
        shutil.copyfile(REQUIREMENTS / "run.txt", venv / ".run.done")
        scratch.symlink_to(venv.name)
        scratch.replace(link)


def launch(arguments: list[str]) -> NoReturn:
    """Replace this process by the tool."""
    venv = ensure_venv("run")
    leave_link(venv)
    python = venv / "bin/python"
    path = [str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]
    os.environ["PYTHONPATH"] = os.pathsep.join(part for part in path if part)
    os.execv(python, [str(python), "-m", "pageferry", *arguments])


def main(arguments: list[str]) -> int:
    """Run the command in the first argument."""
    verb = arguments[0] if arguments else ""
    if sys.version_info < (3, 11):  # noqa: UP036 - an older Python may run this
        fail("Python 3.11 or newer is needed", "use Debian 12 or newer")
    if verb == "launch":
        launch(arguments[1:])
    if verb == "setup":
        install_packages(wanted_packages())
        ensure_venv("run", "dev")
        return 0
    if verb == "python":
        print(ensure_venv("run", "dev") / "bin/python")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(EXIT_INTERRUPTED)
