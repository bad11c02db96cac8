# SPDX-License-Identifier: GPL-2.0-only
"""A disk with ext4 for machines of `counted`: always the same bytes."""

from __future__ import annotations

import functools
import os
import tempfile
from pathlib import Path

from pageferry import paths
from pageferry.errors import ExitCode, PageferryError
from pageferry.proc import capture, find_tool
from pageferry.units import KIB, MIB

# Room for the files that a benchmark measures.
BYTES = 64 * MIB
# The RAM disk that gets the image.
WORDS = (f"brd.rd_size={BYTES // KIB}",)

_BLOCK = 4 * KIB
# Nothing here is left to chance, the clock, or the host's /etc/mke2fs.conf. Without a
# journal and inode tables to write later, no thread of ext4 runs while pages move.
_UUID = "11111111-1111-1111-1111-111111111111"
_FEATURES = "none,extent,filetype,large_file,sparse_super,dir_index,extra_isize"
_SETTINGS = {
    "MKE2FS_CONFIG": os.devnull,
    "SOURCE_DATE_EPOCH": "1577836800",
    # For e2fsprogs before 1.47.1.
    "E2FSPROGS_FAKE_TIME": "1577836800",
}


@functools.cache
def ext4_image() -> bytes:
    """Make an image of an empty ext4 file system, without the zeros at its end."""
    path = paths.venv_path()
    mke2fs = find_tool("mke2fs", "e2fsprogs", path)
    with tempfile.TemporaryDirectory(dir=paths.make_cache_dir("vm")) as name:
        image = Path(name, "disk.img")
        with image.open("wb") as stream:
            stream.truncate(BYTES)
        made = capture(
            [
                *(mke2fs, "-q", "-F", "-b", str(_BLOCK), "-I", "256", "-N", "16"),
                *("-m", "0", "-O", _FEATURES, "-U", _UUID),
                *("-E", f"hash_seed={_UUID},root_owner=0:0", str(image)),
            ],
            env={**os.environ, "PATH": path, **_SETTINGS},
        )
        if made.returncode:
            raise PageferryError(
                "cannot make an ext4 file system",
                value=mke2fs,
                detail=made.stdout + made.stderr,
                code=ExitCode.NOT_STARTED,
            )
        used = image.read_bytes().rstrip(b"\0")
    return used.ljust(-(-len(used) // _BLOCK) * _BLOCK, b"\0")
