# SPDX-License-Identifier: GPL-2.0-only
"""Reads data races from KCSAN's reports, and selects ours."""

from __future__ import annotations

import re

from helpers import builds

_COUNTER = re.compile(r"^(\w+): (\d+)$", re.MULTILINE)
_REPORT = re.compile(r"BUG: KCSAN: data-race in (\S+)(?: / (\S+))?")


def ours(log: str) -> list[str]:
    """List each report once that names a function of ours.

    Linux itself has tolerated races, which are not tested here.
    """
    functions = builds.our_functions()
    found = [
        match[0]
        for match in _REPORT.finditer(log)
        # A compiler splits parts off a function, and names them "NAME.SUFFIX".
        if any(name.partition(".")[0] in functions for name in match.groups("") if name)
    ]
    return list(dict.fromkeys(found))


def counters(text: str) -> dict[str, int]:
    """Read KCSAN's statistics from debugfs."""
    return {name: int(value) for name, value in _COUNTER.findall(text)}
