# SPDX-License-Identifier: GPL-2.0-only
"""The model's answer, as text and as a document."""

from __future__ import annotations

from collections.abc import Sequence

from pageferry import output
from pageferry.model.constants import Machine
from pageferry.model.designs import Choice, Point, Prediction, median_error
from pageferry.model.fit import CAPS, SOURCES
from pageferry.report import published
from pageferry.units import format_rate, format_size


def document(
    machine: Machine,
    points: Sequence[Point],
    designs: Sequence[Prediction],
    choices: Sequence[Choice],
) -> dict[str, object]:
    """Return everything for --json: integers, with units in the keys."""
    found: dict[str, object] = {
        "schema": "pageferry/model",
        "schema_version": 1,
        "constants": machine.as_json(),
        "predictions": [one.as_json() for one in designs],
        "choices": [_choice(choice) for choice in choices],
    }
    if points:
        unseen = [point for point in points if not point.gave_constants]
        found["constants_from"] = SOURCES
        found["check"] = {
            "provenance": published.load(CAPS).provenance,
            "median_abs_error_permille": _medians(points),
            "median_abs_error_permille_unseen": _medians(unseen),
            "points": [point.as_json() for point in points],
        }
    return found


def _medians(points: Sequence[Point]) -> dict[str, int]:
    rate, first, both = median_error(points)
    return {
        "rate": round(1000 * rate),
        "first_folio": round(1000 * first),
        "both": round(1000 * both),
    }


def _choice(choice: Choice) -> dict[str, object]:
    chosen = choice.chosen
    return {
        "prediction": True,
        "limit_ns": choice.limit_ns,
        "goal_bytes_per_s": choice.goal_bytes_per_s,
        "chosen": None if chosen is None else chosen.as_json(),
        "reaches_goal": chosen is not None
        and chosen.bytes_per_s >= choice.goal_bytes_per_s,
        "tried": [one.as_json() for one in choice.tried],
    }


def render(
    machine: Machine,
    points: Sequence[Point],
    designs: Sequence[Prediction],
    choices: Sequence[Choice],
) -> str:
    """Format everything as text."""
    parts = [_constants(machine, fitted=bool(points))]
    if points:
        parts.append(_points(points))
        parts.append(_errors(points))
    parts.append(
        "PREDICTION, not measured; unmapped times of folios in us:\n"
        + _predictions(designs)
    )
    parts += [_sentence(choice) for choice in choices]
    return "\n\n".join(parts)


def _constants(machine: Machine, *, fitted: bool) -> str:
    rows = []
    for name, value in machine.as_json().items():
        if name.endswith("_ps"):
            shown = [name.removesuffix("_ps"), f"{value / 1e6:.3f} us"]
        elif name.endswith("_bytes_per_s"):
            shown = [name.removesuffix("_bytes_per_s"), format_rate(value)]
        else:
            shown = [name, str(value)]
        rows.append([*shown, SOURCES[name] if fitted else ""])
    return output.table(["constant", "value", "from" if fitted else ""], rows)


def _points(points: Sequence[Point]) -> str:
    head = ["folio", "channels", "cap", "GB/s", "model", "error"]
    head += ["first us", "model us", "error", ""]
    rows = [
        [
            format_size(point.cell.folio_bytes),
            str(point.cell.channels),
            str(point.cell.cap_pages),
            f"{point.cell.bytes_per_s / 1e9:.2f}",
            f"{point.model.bytes_per_s / 1e9:.2f}",
            f"{100 * point.rate_error:+.1f}%",
            f"{point.cell.first_ns / 1e3:.0f}",
            f"{point.model.first_folio_ns / 1e3:.0f}",
            f"{100 * point.first_error:+.1f}%",
            "gave constants" if point.gave_constants else "",
        ]
        for point in points
    ]
    title = f"Published by others: {published.load(CAPS).provenance}"
    return f"{title}\n{output.table(head, rows)}"


def _errors(points: Sequence[Point]) -> str:
    unseen = [point for point in points if not point.gave_constants]
    lines = []
    for name, some in (("all", points), ("gave no constant", unseen)):
        rate, first, both = (f"{100 * error:.1f}%" for error in median_error(some))
        lines.append([name, str(len(some)), rate, first, both])
    head = ["points", "number", "throughput", "first folio", "both"]
    return "Median absolute error\n" + output.table(head, lines)


def _predictions(designs: Sequence[Prediction]) -> str:
    head = ["design", "folio", "channels", "window", "depth", "rate"]
    head += ["first", "mean", "p99", "last", "CPU"]
    rows = []
    for one in designs:
        times = (one.first_ns, one.mean_ns, one.p99_ns, one.last_ns)
        rows.append(
            [
                one.design,
                format_size(one.folio_bytes),
                str(one.channels) if one.channels else "-",
                format_size(one.window_bytes),
                str(one.depth),
                format_rate(one.bytes_per_s),
                *[f"{ns / 1e3:.0f}" for ns in times],
                f"{one.cpu_permille / 10:.0f}%",
            ]
        )
    return output.table(head, rows)


def _sentence(choice: Choice) -> str:
    size = format_size(choice.tried[0].folio_bytes)
    limit = f"{choice.limit_ns / 1e3:.0f} us"
    chosen = choice.chosen
    if chosen is None:
        return f"Predicted for {size}: no window tried keeps p99 within {limit}."
    reached = chosen.bytes_per_s >= choice.goal_bytes_per_s
    goal = "reaches" if reached else "misses"
    return (
        f"Predicted for {size}: windows of {format_size(chosen.window_bytes)}, "
        f"depth {chosen.depth}; {goal} 95% of the posted design at its largest cap, "
        f"p99 {chosen.p99_ns / 1e3:.0f} us, limit {limit} (stock, 2 MiB)"
    )
