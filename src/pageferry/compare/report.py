# SPDX-License-Identifier: GPL-2.0-only
"""The figures of all runs as text and as JSON."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass

from pageferry import output
from pageferry.compare.figures import Figure, Found
from pageferry.compare.machine import Machine
from pageferry.compare.runs import MIGRATED, WALL, Job
from pageferry.report.difference import judge

QUIET = "quiet"
_STOCK = (
    "not visible: waits for single folios, which only the kernel of pageferry counts"
)
_EMULATED = "emulated CPUs: compare only figures of this run, and those as ratios"

# The pressure begins after a second, and has a turn each second.
_SHORT_S = 3.0
# Chance sets the ranges of equal variants apart in one of 35 cases with 4 rounds. With 3
# rounds it does so in one of 10 cases, and with one round always.
_FEWEST_ROUNDS = 4
_LITTLE_MIB = 1.0

# The runs of each variant, in the order of the rounds.
Runs = Mapping[str, Sequence[Found]]


@dataclass(frozen=True)
class Range:
    """A figure of several runs."""

    median: float
    min: float
    max: float


def _range(values: Sequence[float]) -> Range:
    return Range(statistics.median(values), min(values), max(values))


def _known(runs: Runs) -> list[Figure]:
    """List the figures that every run has."""
    every = [found for many in runs.values() for found in many]
    return [figure for figure in every[0] if all(figure in one for one in every)]


def _base(runs: Runs) -> str:
    """Return the variant that others are compared with: the first with pressure."""
    return next((name for name in runs if name != QUIET), QUIET)


def _verdict(figure: Figure, base: Range, found: Range, rounds: int) -> str:
    # The pressure sets the amount of migration, which is no merit.
    if figure == MIGRATED:
        return ""
    said = judge(base, found, more_is_better=figure.more_is_better)
    if rounds < _FEWEST_ROUNDS and said in ("better", "worse"):
        return f"few rounds: chance may set ranges of {rounds} apart"
    return said


def _warnings(runs: Runs, machine: Machine) -> list[str]:
    """Say why runs may mislead, or show no difference between engines."""
    found = [_EMULATED] if machine.emulated else []
    pressed = runs[_base(runs)]
    if min(one[WALL] for one in pressed) < _SHORT_S:
        found.append(f"runs of less than {_SHORT_S:g} s have hardly any pressure")
    still = max((one[MIGRATED] for one in runs.get(QUIET, ())), default=0.0)
    if max(one[MIGRATED] for one in pressed) < max(2 * still, _LITTLE_MIB):
        found.append(
            "hardly any memory migrated, so these figures say nothing about engines;"
            " the pages may be on other nodes, pinned or shared: pageferry move --dry-run"
        )
    return found


def document(job: Job, runs: Runs, machine: Machine) -> dict[str, object]:
    """Return the document of --json."""
    base = _base(runs)
    rounds = len(runs[base])
    rows = []
    for figure in _known(runs):
        ranges = {v: _range([one[figure] for one in runs[v]]) for v in runs}
        rows.append(
            {
                "name": figure.name,
                "unit": figure.unit,
                "more_is_better": figure.more_is_better,
                "variants": [
                    {
                        "variant": variant,
                        "median": found.median,
                        "min": found.min,
                        "max": found.max,
                        "values": [one[figure] for one in runs[variant]],
                        "verdict": _verdict(figure, ranges[base], found, rounds),
                    }
                    for variant, found in ranges.items()
                ],
            }
        )
    return {
        "schema": "pageferry/compare",
        "machine": asdict(machine),
        "command": list(job.command),
        "pressure": job.pressure,
        "compared_with": base,
        "rounds": rounds,
        "warnings": _warnings(runs, machine),
        "figures": rows,
    }


def text(job: Job, runs: Runs, machine: Machine, *, stock: bool) -> str:
    """Lay out the medians, with ranges, and the verdicts."""
    base = _base(runs)
    others = [name for name in runs if name != base]
    head = ["figure", base, *(cell for name in others for cell in (name, "verdict"))]
    rows = []
    for figure in _known(runs):
        ranges = {v: _range([one[figure] for one in runs[v]]) for v in runs}
        cells = [figure.title, _shown(ranges[base])]
        for name in others:
            verdict = _verdict(figure, ranges[base], ranges[name], len(runs[base]))
            cells += [_shown(ranges[name]), verdict.partition(":")[0]]
        rows.append(cells)
    count = len(runs[base])
    rounds = "1 round" if count == 1 else f"{count} rounds"
    lines = [
        f"{' '.join(job.command)}: {rounds}, pressure {job.pressure}",
        "",
        output.table(head, rows),
        "",
        f"compared with {base}; {QUIET} has no pressure. Each cell has the median, and"
        " the range of the rounds. noise: the ranges overlap. few rounds: fewer than"
        f" {_FEWEST_ROUNDS} give no verdict.",
    ]
    lines += [f"warning: {text}" for text in _warnings(runs, machine)]
    if stock:
        lines.append(_STOCK)
    return "\n".join(lines)


def _shown(found: Range) -> str:
    if found.min == found.max:
        return _number(found.median)
    return f"{_number(found.median)} ({_number(found.min)}..{_number(found.max)})"


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 or value == int(value) else f"{value:.3g}"
