# SPDX-License-Identifier: GPL-2.0-only
"""Adds up the lines of the trace between two calls."""

from __future__ import annotations

import time
from collections.abc import Callable

from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files
from pageferry.watch import tracing
from pageferry.watch.events import Totals
from pageferry.watch.schemes import Schemes

NOT_ASKED = "not asked for"
# A buffer of the kernel holds the lines of this time.
_COLLECT_S = 0.5
# Further lines wait, so that a view and a scrape do not.
_PASSES = 8


def empty(collect: Callable[[], bool]) -> None:
    """Read all lines, unless the kernel writes faster than this reads."""
    for _ in range(_PASSES):
        if not collect():
            break


def wait(seconds: float, collect: Callable[[], bool]) -> None:
    """Wait, and empty the buffer of the trace meanwhile."""
    end = time.monotonic() + seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, _COLLECT_S))
        empty(collect)


class Follower:
    """The trace of all migrations, or the reason why there is none."""

    def __init__(self, files: Files, *, trace: bool = True) -> None:
        """Start the trace, if the user wants one."""
        self._schemes = Schemes(files)
        self._totals = Totals()
        self.no_trace = tracing.obstacle(files) if trace else NOT_ASKED
        self._trace: tracing.Trace | None = None
        if self.no_trace is None:
            try:
                self._trace = tracing.Trace(files)
            except (OSError, PageferryError) as error:
                # A kernel in lockdown refuses root, too.
                self.no_trace = f"the kernel refused the trace: {error}"

    def close(self) -> None:
        """Stop the trace."""
        if self._trace is not None:
            self._trace.close()
        self._trace = None

    def collect(self) -> bool:
        """Read a part of the buffer; say whether it had any lines."""
        lines: list[str] = []
        if self._trace is not None:
            try:
                lines = self._trace.lines()
            except OSError as error:
                # Another program may have removed the instance.
                self.no_trace = f"the trace ended: {error.strerror}"
                self.close()
        self._schemes.refresh()
        self._totals.add(lines, self._schemes.direction)
        return bool(lines)

    def tasks(self) -> set[tuple[int, str]]:
        """Return the PIDs and names of tasks since the last call of take()."""
        return {(pid, name) for pid, name, _ in self._totals.callers}

    def take(self) -> Totals:
        """Return the totals since the last call."""
        return self._totals.take()
