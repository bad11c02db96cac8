# SPDX-License-Identifier: GPL-2.0-only
"""Memory layouts: several boots of a virtual machine, each with all measurements.

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
    """Combine the lines of all boots into one run.

    Rounds are numbered from boot to boot; warm-up rounds stay 0.
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
    """Note the number of layouts in each row, if there are several."""
    if layouts == 1:
        return list(rows)
    return [msgspec.structs.replace(row, layouts=layouts) for row in rows]
