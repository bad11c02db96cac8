# SPDX-License-Identifier: GPL-2.0-only
"""Recorded loads, and the use of nodes that they cause with other weights."""

from __future__ import annotations

import csv
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pageferry.balance import rule
from pageferry.balance.balancer import Balancer, Decision
from pageferry.errors import PageferryError, usage_error


@dataclass(frozen=True)
class Moment:
    """The load from a time on, in bytes/s."""

    time_s: float
    # Recorded use by node, independent of the weights.
    use: Mapping[int, float]
    # The use of programs without a limit; the placement divides it among the nodes.
    demand: float

    def own(self, shares: Mapping[int, float], bandwidth: Mapping[int, float]) -> float:
        """Return the traffic of programs whose memory has these shares."""
        left = {n: b - self.use.get(n, 0.0) for n, b in bandwidth.items()}
        return min(self.demand, rule.throughput(shares, left))

    def seen(
        self, shares: Mapping[int, float], bandwidth: Mapping[int, float]
    ) -> dict[int, float]:
        """Return the use that the nodes' counters would show."""
        own = self.own(shares, bandwidth)
        return {
            node: min(self.use.get(node, 0.0) + own * shares.get(node, 0.0), whole)
            for node, whole in bandwidth.items()
        }


def load(path: Path) -> list[Moment]:
    """Read a recorded load: CSV with the columns time_s, demand, node0, node1, ..."""
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise usage_error(f"cannot read the recorded load: {error}", path) from error
    return parse(text, str(path))


def parse(text: str, source: str) -> list[Moment]:
    """Parse a recorded load; lines that begin with # are comments."""
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    moments = []
    for number, row in enumerate(csv.DictReader(lines), 1):
        try:
            moments.append(_moment(row))
        except (KeyError, TypeError, ValueError) as error:
            raise PageferryError(
                "recorded load is damaged",
                value=f"{source}, row {number}",
                reason=f"{type(error).__name__}: {error}",
            ) from error
    times = [moment.time_s for moment in moments]
    if not times or times != sorted(times):
        raise PageferryError(
            "recorded load is damaged",
            value=source,
            reason="times must grow" if times else "no rows",
        )
    return moments


def _moment(row: Mapping[str, str]) -> Moment:
    columns = dict(row)
    time_s = float(columns.pop("time_s"))
    demand = float(columns.pop("demand", "0") or 0)
    use = {}
    for name, value in columns.items():
        if not (name.startswith("node") and name[4:].isdecimal()):
            raise ValueError(f"unknown column {name!r}")
        use[int(name[4:])] = float(value)
    if demand < 0 or any(rate < 0 for rate in use.values()):
        raise ValueError("a rate below 0")
    return Moment(time_s, use, demand)


def at(moments: Sequence[Moment], time_s: float) -> Moment:
    """Return the load at a time."""
    past = [moment for moment in moments if moment.time_s <= time_s]
    return past[-1] if past else moments[0]


def replay(
    balancer: Balancer,
    moments: Sequence[Moment],
    memory_bytes: int,
    interval_s: float,
) -> list[tuple[float, Decision]]:
    """Let a balancer decide on a recorded load, as if memory moved at once."""
    made = []
    # The last load lasts long enough for a decision.
    end_s = moments[-1].time_s + 3 * balancer.settings.hold_s
    steps = int((end_s - moments[0].time_s) / interval_s) + 1
    for number in range(steps):
        now_s = moments[0].time_s + number * interval_s
        seen = at(moments, now_s).seen(balancer.weights.shares, balancer.bandwidth)
        decision = balancer.step(now_s, seen, memory_bytes)
        made.append((now_s, decision))
        if decision.weights is not None:
            balancer.started(now_s, decision.weights, decision.moves_bytes)
    return made
