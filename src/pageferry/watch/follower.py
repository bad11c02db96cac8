# SPDX-License-Identifier: GPL-2.0-only
"""Adds up the lines of the trace between two calls."""

from __future__ import annotations

from pageferry.sysfs.files import Files
from pageferry.watch import sources, tracing
from pageferry.watch.events import Totals


class Follower:
    """The trace of all migrations, or the reason why there is none."""

    def __init__(self, files: Files) -> None:
        self._files = files
        self._totals = Totals()
        self.no_trace = tracing.obstacle(files)
        self._trace = None if self.no_trace else tracing.Trace(files)

    def close(self) -> None:
        """Stop the trace."""
        if self._trace is not None:
            self._trace.close()
        self._trace = None

    def collect(self) -> None:
        """Empty the buffer of the trace before it is full."""
        if self._trace is not None:
            self._totals.add(self._trace.lines(), self._direction)

    def take(self) -> Totals:
        """Return the totals since the last call."""
        return self._totals.take()

    def _direction(self, pid: int, number: int) -> str | None:
        return sources.scheme_direction(self._files, pid, number)
