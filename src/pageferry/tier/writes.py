# SPDX-License-Identifier: GPL-2.0-only
"""The writes that let DAMON move hot and cold memory. This module writes no files."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from pageferry.damon.scheme import ANY_COUNT, ANY_SIZE, Write, target_writes
from pageferry.tier.plan import Goal, Move, Range, Watch

# Each aggregation has 20 samples.
SAMPLE_US = 10_000
AGGREGATE_US = 200_000
_UPDATE_US = 2_000_000
_REGIONS = (100, 1000)
# Hot memory was accessed in 2 of 20 samples or more. DAMON sets the age of a region to 0
# if this count changes by more than 2. By chance, that of busy memory nearly always does
# so within a few aggregations. An age of 1 lets DAMON find out where hot memory ends.
_HOT_ACCESSES = 2
_HOT_AGE = 1
# With a goal, a quota begins with one byte, and doubles at most in each interval. DAMON
# looks at it once in each aggregation. As the interval is shorter, each look begins one.
_RESET_MS = AGGREGATE_US // 2000
_SCHEMES = "contexts/0/schemes"


@dataclass(frozen=True)
class Features:
    """The abilities of the running kernel's DAMON."""

    # Several destinations of a scheme. `tier` does not use them, but a kernel that has
    # them migrates by virtual address, too.
    dests: bool = False
    # Goals that the kernel measures on a node itself.
    node_goals: bool = False
    # Migration at all.
    target_nid: bool = False
    # Files of a scheme that show these abilities.
    FILES: ClassVar = ("dests/nr_dests", "quotas/goals/0/nid", "target_nid")


def start_writes(
    watch: Watch, features: Features, cold_after_s: float, rates: Sequence[int]
) -> list[Write]:
    """List the writes below kdamonds/N that configure a kdamond without starting it."""
    top = "contexts/0/monitoring_attrs"
    writes = [
        ("contexts/nr_contexts", "1"),
        ("contexts/0/operations", "vaddr" if watch.node is None else "paddr"),
        (f"{top}/nr_regions/max", str(_REGIONS[1])),
        (f"{top}/nr_regions/min", str(_REGIONS[0])),
        (f"{top}/intervals/sample_us", str(SAMPLE_US)),
        (f"{top}/intervals/aggr_us", str(AGGREGATE_US)),
        (f"{top}/intervals/update_us", str(_UPDATE_US)),
        *(target_writes(watch.pids) if watch.node is None else _ranges(watch.ranges)),
        (f"{_SCHEMES}/nr_schemes", str(len(watch.moves))),
    ]
    for at, move in enumerate(watch.moves):
        writes += _scheme(at, move, watch, features, cold_after_s)
    return [*writes, *rate_writes(rates)]


def rate_writes(rates: Sequence[int]) -> list[Write]:
    """List the writes that set the rate of each scheme, in bytes/s."""
    return [
        (f"{_SCHEMES}/{at}/quotas/bytes", str(max(rate * AGGREGATE_US // 1_000_000, 1)))
        for at, rate in enumerate(rates)
    ]


def goal_writes(reached: list[int]) -> list[Write]:
    """List the writes that tell a kernel how far it has come, if it cannot measure."""
    return [
        (f"{_SCHEMES}/{at}/quotas/goals/0/current_value", str(value))
        for at, value in enumerate(reached)
    ]


def keep_writes(watch: Watch) -> list[Write]:
    """List the writes for other processes, and for other memory that stays."""
    writes = target_writes(watch.pids)
    for at, move in enumerate(watch.moves):
        writes += _filters(at, move, watch.keep)
    return writes


def _ranges(ranges: tuple[Range, ...]) -> list[Write]:
    top = "contexts/0/targets/0/regions"
    writes = [("contexts/0/targets/nr_targets", "1")]
    writes.append((f"{top}/nr_regions", str(len(ranges))))
    for at, (start, end) in enumerate(ranges):
        writes += [(f"{top}/{at}/start", str(start)), (f"{top}/{at}/end", str(end))]
    return writes


def _scheme(
    at: int,
    move: Move,
    watch: Watch,
    features: Features,
    cold_after_s: float,
) -> list[Write]:
    top = f"{_SCHEMES}/{at}"
    cold_age = max(round(cold_after_s * 1_000_000 / AGGREGATE_US), 1)
    accesses = (_HOT_ACCESSES, ANY_COUNT) if move.hot else (0, "0")
    age = _HOT_AGE if move.hot else cold_age
    # The hottest memory goes first, and the memory that was idle for longest. By virtual
    # address DAMON charges memory that is in its place, too. The hottest memory is on the
    # fast node, so with priorities the rest would never move.
    if watch.node is None:
        weights = ("0", "0")
    else:
        weights = ("1000", "0") if move.hot else ("0", "1000")
    return [
        (f"{top}/action", "migrate_hot" if move.hot else "migrate_cold"),
        (f"{top}/target_nid", str(move.target)),
        (f"{top}/access_pattern/sz/min", "0"),
        (f"{top}/access_pattern/sz/max", ANY_SIZE),
        (f"{top}/access_pattern/nr_accesses/min", str(accesses[0])),
        (f"{top}/access_pattern/nr_accesses/max", accesses[1]),
        (f"{top}/access_pattern/age/min", str(age)),
        (f"{top}/access_pattern/age/max", ANY_COUNT),
        (f"{top}/quotas/reset_interval_ms", str(_RESET_MS)),
        (f"{top}/quotas/weights/sz_permil", "0"),
        (f"{top}/quotas/weights/nr_accesses_permil", weights[0]),
        (f"{top}/quotas/weights/age_permil", weights[1]),
        *_goal(top, move.goal, features),
        *_filters(at, move, watch.keep),
    ]


def _goal(top: str, goal: Goal, features: Features) -> list[Write]:
    name = f"{top}/quotas/goals"
    writes = [(f"{name}/nr_goals", "1")]
    if features.node_goals:
        return [
            *writes,
            (f"{name}/0/target_metric", goal.metric),
            (f"{name}/0/target_value", str(goal.target_bp)),
            (f"{name}/0/nid", str(goal.node)),
        ]
    # The service writes the current value.
    return [
        *writes,
        (f"{name}/0/target_metric", "user_input"),
        (f"{name}/0/target_value", "10000"),
        (f"{name}/0/current_value", "0"),
    ]


def _filters(at: int, move: Move, keep: tuple[Range, ...]) -> list[Write]:
    """A filter leaves out what matches: bound memory, and pages of the other kind.

    DAMON knows the heat of a region. The filter looks at each page.
    """
    top = f"{_SCHEMES}/{at}/filters"
    writes = [(f"{top}/nr_filters", str(len(keep) + 1))]
    for number, (start, end) in enumerate(keep):
        writes += [
            (f"{top}/{number}/type", "addr"),
            (f"{top}/{number}/matching", "Y"),
            (f"{top}/{number}/addr_start", str(start)),
            (f"{top}/{number}/addr_end", str(end)),
        ]
    last = f"{top}/{len(keep)}"
    matching = "N" if move.hot else "Y"
    return [*writes, (f"{last}/type", "young"), (f"{last}/matching", matching)]
