# SPDX-License-Identifier: GPL-2.0-only
"""The only module that prints: stdout is the answer, stderr the talk."""

from __future__ import annotations

import io
import json
import os
import shutil
import sys
import time
from collections.abc import Mapping, Sequence

from pageferry.errors import PageferryError


def prepare() -> None:
    """Print names in other encodings, such as those of files, as escapes."""
    # A closed stdout is None.
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="backslashreplace")


def answer(text: str) -> None:
    """Print the answer for people."""
    print(text, flush=True)


def answer_json(document: Mapping[str, object] | Sequence[object]) -> None:
    """Print the answer for programs: one document, nothing else on stdout."""
    print(json.dumps(document, indent=2), flush=True)


def talk(text: str) -> None:
    """Print a message about the progress of the work."""
    print(text, file=sys.stderr, flush=True)


def pass_on(data: bytes, *, to_stderr: bool) -> None:
    """Print the output of a guest's command, byte for byte."""
    stream = sys.stderr if to_stderr else sys.stdout
    stream.buffer.write(data)
    stream.buffer.flush()


def warn(text: str) -> None:
    """Print a warning."""
    talk(f"pageferry: warning: {text}")


def report_error(error: PageferryError, *, as_json: bool) -> None:
    """Print an error on stderr, and with `as_json` on stdout, too."""
    if error.detail:
        talk(error.detail.rstrip("\n"))
    talk(f"pageferry: {error.line()}")
    if error.hint:
        talk(f"  try: {error.hint}")
    if as_json:
        answer_json(error.as_json())


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay out a table; columns of numbers are aligned to the right."""
    cells = [list(header), *[list(row) for row in rows]]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    numeric = [
        bool(rows) and all(row[i][:1].isdigit() or row[i] in {"", "-"} for row in rows)
        for i in range(len(header))
    ]
    lines = []
    for row in cells:
        padded = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(padded).rstrip())
    return "\n".join(lines)


def printable(name: str) -> str:
    """Replace control characters in a name that other people have chosen."""
    return "".join(char if char.isprintable() else "?" for char in name)


def duration(seconds: float) -> str:
    """Write a time as people read it: 7 s, 3 min 05 s, 1 h 02 min."""
    whole = int(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"


class Progress:
    """The progress of a long job: a bar on a terminal, otherwise a line at times."""

    LINE_EVERY_S = 20.0
    BAR_EVERY_S = 0.2

    def __init__(self, title: str, total: int | None) -> None:
        """Start; without a total the display counts steps and shows no percentage."""
        self.title = title
        self.total = total
        self.done = 0
        self.bar = sys.stderr.isatty() and os.environ.get("TERM") != "dumb"
        self.start = time.monotonic()
        self._shown_at = self.start

    def advance(self, steps: int = 1) -> None:
        """Count steps, and update the display unless it was updated recently."""
        self.done += steps
        now = time.monotonic()
        wait = self.BAR_EVERY_S if self.bar else self.LINE_EVERY_S
        if now - self._shown_at >= wait:
            self._shown_at = now
            self._show(now)

    def remaining_s(self, now: float) -> float | None:
        """Estimate the time left; None while too few steps are done."""
        elapsed = now - self.start
        if self.total is None or elapsed < 5 or self.done * 50 < self.total:
            return None
        return max(0.0, elapsed * (self.total - self.done) / self.done)

    def text(self, now: float) -> str:
        """Format the share that is done, the time spent and the time left."""
        spent = duration(now - self.start)
        if self.total is None:
            return f"{self.done} steps, {spent}"
        # The total is an estimate, so the display stops at 99%.
        percent = min(100 * self.done // max(self.total, 1), 99)
        left = self.remaining_s(now)
        tail = "" if left is None else f", about {duration(left)} left"
        return f"{percent}%, {spent}{tail}"

    def _show(self, now: float) -> None:
        if not self.bar:
            talk(f"{self.title}: {self.text(now)}")
            return
        filled = min(30 * self.done // max(self.total or 1, 1), 29)
        bar = "" if self.total is None else f"[{'#' * filled}{'.' * (30 - filled)}] "
        # Only one line can be removed, so it has to fit.
        line = f"{self.title} {bar}{self.text(now)}"
        line = line[: shutil.get_terminal_size().columns - 1]
        print(f"\r\033[K{line}", end="", file=sys.stderr, flush=True)

    def finish(self) -> None:
        """Remove the bar, so that the next line starts at the margin."""
        if self.bar:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
