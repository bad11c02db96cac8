# SPDX-License-Identifier: GPL-2.0-only
"""Try what has failed again, each time after a longer wait. No clock."""

from __future__ import annotations

_LONGEST_S = 60.0


class Backoff:
    """Waits of 5 s, 10 s, and so on, up to a minute."""

    def __init__(self, first_s: float = 5.0) -> None:
        self.first_s = first_s
        # Failed tries in a row, and the time of the next one.
        self.failures = 0
        self.again_s = 0.0

    def fail(self, now_s: float) -> None:
        """Let the next try wait twice as long as the last one."""
        self.again_s = now_s + min(self.first_s * 2.0**self.failures, _LONGEST_S)
        # More would not fit a float.
        self.failures = min(self.failures + 1, 16)

    def succeed(self) -> None:
        """Begin anew with the shortest wait."""
        self.failures, self.again_s = 0, 0.0
