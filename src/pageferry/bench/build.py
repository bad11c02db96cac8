# SPDX-License-Identifier: GPL-2.0-only
"""Builds the C programs, once for each content of bench/."""

from __future__ import annotations

import hashlib
import os
import shutil
import tempfile
from pathlib import Path

from pageferry import output
from pageferry.errors import ExitCode, PageferryError, from_os_error, unsupported
from pageferry.kernel.arch import X86_64, Architecture
from pageferry.paths import make_cache_dir, repo_root
from pageferry.proc import capture, find_tool


def programs() -> list[str]:
    """List the programs: each is a file of bench/."""
    return sorted(path.stem for path in (repo_root() / "bench").glob("*.c"))


def content_key(directory: Path, arch: Architecture = X86_64) -> str:
    """Hash the sources and the environment's choice of compiler."""
    digest = hashlib.sha256()
    sources = [directory / "Makefile", *directory.glob("*.c")]
    # Programs share assembly with the kernel.
    shared = directory.parent.glob("linux/tree/mm/*/*_asm.h")
    for path in sorted([*sources, *directory.glob("common/*.[ch]"), *shared]):
        digest.update(f"{path.relative_to(directory.parent)}\0".encode())
        digest.update(hashlib.sha256(path.read_bytes()).digest())
    if arch is not X86_64:
        digest.update(f"{arch.name}\0".encode())
    for name in ("CC", "CFLAGS"):
        digest.update(f"{name}={os.environ.get(name, '')}\0".encode())
    return digest.hexdigest()[:16]


def build(arch: Architecture = X86_64) -> Path:
    """Return a directory with the programs, and build them if the content is new."""
    source = repo_root() / "bench"
    try:
        cache = make_cache_dir("bench")
        wanted = cache / content_key(source, arch)
        if wanted.is_dir():
            return wanted
        return _build(source, cache, wanted, arch)
    except OSError as error:
        raise from_os_error(
            error, "cannot build the benchmark programs", ExitCode.NOT_STARTED
        ) from error


def _build(source: Path, cache: Path, wanted: Path, arch: Architecture) -> Path:
    make = find_tool("make", "build-essential")
    if arch is X86_64:
        find_tool(os.environ.get("CC", "cc").split()[0], "build-essential")
        output.talk("building the benchmark programs")
    else:
        find_tool(*arch.compilers[0])
        # Debian's compiler package only recommends this package.
        if not Path("/usr", arch.cross.rstrip("-"), "include/stdio.h").exists():
            raise unsupported(
                f"no C library for {arch.name}", hint=f"apt-get install {arch.libc}"
            )
        output.talk(f"building the benchmark programs for {arch.name}")
    # A half-built directory must never get the final name.
    with tempfile.TemporaryDirectory(dir=cache, prefix=".build-") as name:
        objects, ready = Path(name, "objects"), Path(name, "ready")
        cross = [f"CROSS={arch.cross}"] if arch.cross else []
        done = capture([make, "-s", "-C", source, f"OUT={objects}", *cross])
        if done.returncode:
            raise PageferryError(
                "cannot build the benchmark programs",
                value=source,
                detail=done.stdout + done.stderr,
                code=ExitCode.NOT_STARTED,
            )
        ready.mkdir()
        for program in programs():
            shutil.copy2(objects / program, ready / program)
        try:
            ready.rename(wanted)
        except OSError:
            # Another process has built the same content meanwhile.
            if not wanted.is_dir():
                raise
    return wanted
