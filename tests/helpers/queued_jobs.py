# SPDX-License-Identifier: GPL-2.0-only
"""Jobs that take no time, to test how processes divide them."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from pathlib import Path

from helpers import ahead
from pageferry import proc


def _slow() -> int:
    time.sleep(3)
    return os.getpid()


def _fails() -> int:
    raise ValueError("not this one")


def _patience() -> int:
    """Return the scheduling priority of a program that this process starts."""
    with proc.group(["nice"]) as process:
        assert process.stdout is not None
        niceness = int(process.stdout.read())
        assert os.getsid(process.pid) == os.getsid(0)
    return niceness


JOBS: dict[str, Callable[[], int]] = {
    "patience": _patience,
    "slow": _slow,
    "fails": _fails,
    "last": os.getpid,
}


if __name__ == "__main__":
    for job in sys.argv[2:]:
        ahead.do(Path(sys.argv[1]), job, JOBS[job])
