# SPDX-License-Identifier: GPL-2.0-only
"""A program for `pageferry compare`: keeps some memory in use, and prints a number.

It runs long enough for several turns of the pressure. With the word "until-moved", it also
waits until so much memory has moved, if any moves. A busy host takes long for that.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

PAGE = 4096
SIZE = 32 << 20
SECONDS = 8
LIMIT_S = 120


def moved_pages() -> int:
    """Count the base pages that have moved on this machine."""
    rows = (line.split() for line in Path("/proc/vmstat").read_text().splitlines())
    return {name: int(count) for name, count in rows}["pgmigrate_success"]


def has_to_go_on(begin_s: float, begin_pages: int) -> bool:
    """Say whether the pressure needs more time."""
    took_s = time.monotonic() - begin_s
    if took_s < SECONDS or "until-moved" not in sys.argv:
        return took_s < SECONDS
    return took_s < LIMIT_S and 0 < moved_pages() - begin_pages < SIZE // PAGE


def main() -> None:
    """Write to each page, again and again."""
    memory = bytearray(SIZE)
    passes = 0
    begin = time.monotonic(), moved_pages()
    while not passes or has_to_go_on(*begin):
        passes += 1
        for at in range(0, SIZE, PAGE):
            memory[at] = passes & 255
    assert all(memory[at] == passes & 255 for at in range(0, SIZE, PAGE))
    sys.stdout.write(f"passes: {passes}\n")


if __name__ == "__main__":
    main()
