# SPDX-License-Identifier: GPL-2.0-only
"""Memory layouts: a virtual machine is booted again, and everything measured again.

The place of data in memory differs from boot to boot, and so does the speed of an
emulated CPU. All rounds of one boot have the same places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from pageferry.bench.lines import Line, Timed
from pageferry.results.schema import Row

MAX_LAYOUTS = 100


def one_after_the_other(boots: Iterable[Sequence[Line]]) -> list[Line]:
    """Put the lines of all boots together, as if it had been one with all rounds.

    Rounds are numbered on from boot to boot; those that do not count stay 0.
    """
    lines: list[Line] = []
    before = last = 0
    for boot in boots:
        for line in boot:
            if isinstance(line, Timed) and line.round:
                last = max(last, before + line.round)
                line = msgspec.structs.replace(line, round=before + line.round)
            lines.append(line)
        before = last
    return lines


def noted(rows: Sequence[Row], layouts: int) -> list[Row]:
    """Say in each row of how many layouts it is, where there are several."""
    if layouts == 1:
        return list(rows)
    return [msgspec.structs.replace(row, layouts=layouts) for row in rows]


def boots(topology: str, layouts: int) -> str:
    """Say what is booted, for a run that is only described."""
    often = f", {layouts} times in turn" if layouts > 1 else ""
    return f"boot topology {topology}{often}"
