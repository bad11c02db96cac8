# SPDX-License-Identifier: GPL-2.0-only
"""Data races that KCSAN reports, and whose they are."""

from __future__ import annotations

import re

from helpers import builds

_COUNTER = re.compile(r"^(\w+): (\d+)$", re.MULTILINE)
_REPORT = re.compile(r"BUG: KCSAN: data-race in (\S+)(?: / (\S+))?")


def ours(log: str) -> list[str]:
    """List the reports that name a function of linux/tree, each once.

    Linux itself has races that nobody minds, and is not what we test.
    """
    functions = builds.our_functions()
    found = [
        match[0]
        for match in _REPORT.finditer(log)
        # A compiler names the parts that it makes of a function "NAME.SUFFIX".
        if any(name.partition(".")[0] in functions for name in match.groups("") if name)
    ]
    return list(dict.fromkeys(found))


def counters(text: str) -> dict[str, int]:
    """Read what the file "kcsan" in debugfs says of KCSAN's own work."""
    return {name: int(value) for name, value in _COUNTER.findall(text)}
