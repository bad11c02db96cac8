# SPDX-License-Identifier: GPL-2.0-only
"""A program for `pageferry compare`: keeps some memory in use, and prints a number.

It runs long enough for several turns of the pressure.
"""

from __future__ import annotations

import sys
import time

PAGE = 4096
SIZE = 32 << 20
SECONDS = 8


def main() -> None:
    """Write to each page, again and again."""
    memory = bytearray(SIZE)
    passes = 0
    end = time.monotonic() + SECONDS
    while not passes or time.monotonic() < end:
        passes += 1
        for at in range(0, SIZE, PAGE):
            memory[at] = passes & 255
    assert all(memory[at] == passes & 255 for at in range(0, SIZE, PAGE))
    sys.stdout.write(f"passes: {passes}\n")


if __name__ == "__main__":
    main()
