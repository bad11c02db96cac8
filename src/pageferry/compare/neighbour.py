# SPDX-License-Identifier: GPL-2.0-only
"""A program beside the measured one: copies memory at times, until SIGTERM.

It prints "ready", then the bytes and the nanoseconds of its copies. It imports nothing
of the tool, so that it starts quickly.
"""

from __future__ import annotations

import os
import signal
import sys
import time
import types

_BYTES = 16 << 20
# The copies take a small part of one CPU.
_PAUSE_S = 0.05


def main() -> None:
    """Copy until a signal."""
    stopped, parent = False, os.getppid()

    def stop(_number: int, _frame: types.FrameType | None) -> None:
        nonlocal stopped
        stopped = True

    signal.signal(signal.SIGTERM, stop)
    source, target = bytearray(b"x" * _BYTES), bytearray(_BYTES)
    # The first copy touches the memory.
    target[:] = source
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    done_bytes = took_ns = 0
    # SIGKILL may have ended the command that would stop this program.
    while os.getppid() == parent and not (stopped and done_bytes):
        begin = time.monotonic_ns()
        target[:] = source
        took_ns += time.monotonic_ns() - begin
        done_bytes += _BYTES
        time.sleep(_PAUSE_S)
    sys.stdout.write(f"{done_bytes} {took_ns}\n")


if __name__ == "__main__":
    main()
