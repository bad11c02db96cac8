# SPDX-License-Identifier: GPL-2.0-only
"""The live view on a terminal, with curses of the standard library."""

from __future__ import annotations

import curses
import time

from pageferry.errors import unsupported
from pageferry.watch import view
from pageferry.watch.follower import empty
from pageferry.watch.interval import Watcher

_COLLECT_MS = 200
_WAITING = "pageferry top: the first figures come after {:g} s; q ends it"
_FOOT = "q: end"


def show(watcher: Watcher, every_s: float) -> None:
    """Show intervals until the user presses q."""
    try:
        curses.wrapper(_run, watcher, every_s)
    except curses.error as error:
        raise unsupported(
            "this terminal cannot show a live view",
            reason=str(error),
            hint="pageferry top | cat",
        ) from error


def _run(window: curses.window, watcher: Watcher, every_s: float) -> None:
    # getch() waits so long for a key.
    window.timeout(_COLLECT_MS)
    text = _WAITING.format(every_s)
    draw(window, text)
    end = time.monotonic() + every_s
    while (key := window.getch()) not in (ord("q"), ord("Q")):
        empty(watcher.collect)
        if time.monotonic() >= end:
            text = f"{view.text(watcher.interval())}\n\n{_FOOT}"
            end = time.monotonic() + every_s
        elif key != curses.KEY_RESIZE:
            continue
        draw(window, text)


def draw(window: curses.window, text: str) -> None:
    """Draw as much of the text as the terminal has room for."""
    rows, columns = window.getmaxyx()
    window.erase()
    for at, line in enumerate(text.splitlines()[:rows]):
        # The last cell of a screen cannot be written.
        window.addnstr(at, 0, line, columns - 1)
    window.refresh()
