# SPDX-License-Identifier: GPL-2.0-only
"""The writes that configure DAMON, in order. This module writes no files."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

from pageferry.interleave.gaps import Gap
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import Weights

Write = tuple[str, str]
# The largest values of the files: no limit.
ANY_SIZE = str((1 << 64) - 1)
ANY_COUNT = str((1 << 32) - 1)
_INTERVALS = "contexts/0/monitoring_attrs/intervals"


@dataclass(frozen=True)
class Intervals:
    """DAMON's sampling, aggregation and update intervals in us, and its regions."""

    sample: int
    aggregate: int
    update: int
    min_regions: int
    max_regions: int


# All memory moves, so the precision of the monitoring does not matter.
_ALL = Intervals(100_000, 500_000, 2_000_000, 10, 100)
# The shortest aggregation interval with a quota.
_SOONEST_US = 100_000
# DAMON moves whole regions. With fewer regions, more cold memory moves.
_HOT = Intervals(20_000, 400_000, 4_000_000, 500, 1500)


@dataclass(frozen=True)
class Scheme:
    """The task of one kdamond."""

    pids: tuple[int, ...]
    weights: Weights
    hot: bool = False
    quota: Quota | None = None
    gap: Gap | None = None


def intervals_for(quota: Quota | None, *, hot: bool) -> Intervals:
    """Choose the intervals: DAMON applies the scheme once in each aggregation."""
    if hot or quota is None:
        return _HOT if hot else _ALL
    part = round(quota.interval_s * 1_000_000 / 10)
    aggregate = min(max(part, _SOONEST_US), _ALL.aggregate)
    return replace(_ALL, sample=aggregate // 5, aggregate=aggregate)


def start_writes(scheme: Scheme) -> list[Write]:
    """List the writes below kdamonds/N that configure a kdamond without starting it."""
    intervals = intervals_for(scheme.quota, hot=scheme.hot)
    regions = "contexts/0/monitoring_attrs/nr_regions"
    return [
        ("contexts/nr_contexts", "1"),
        ("contexts/0/operations", "vaddr"),
        (f"{regions}/max", str(intervals.max_regions)),
        (f"{regions}/min", str(intervals.min_regions)),
        *target_writes(scheme.pids),
        ("contexts/0/schemes/nr_schemes", "1"),
        ("contexts/0/schemes/0/action", "migrate_hot"),
        *_pattern_writes(scheme.hot),
        *quota_writes(scheme.quota, scheme.gap, hot=scheme.hot),
        *dest_writes(scheme.weights),
    ]


def target_writes(pids: Sequence[int]) -> list[Write]:
    """List the writes that name the processes."""
    top = "contexts/0/targets"
    named = [(f"{top}/{at}/pid_target", str(pid)) for at, pid in enumerate(pids)]
    return [(f"{top}/nr_targets", str(len(pids))), *named]


def dest_writes(weights: Weights) -> list[Write]:
    """List the writes that name the nodes and their weights."""
    top = "contexts/0/schemes/0/dests"
    writes = [(f"{top}/nr_dests", str(len(weights.targets)))]
    pairs = [(node, weight) for node, weight in weights.pairs if weight]
    for at, (node, weight) in enumerate(pairs):
        writes += [(f"{top}/{at}/id", str(node)), (f"{top}/{at}/weight", str(weight))]
    return writes


def quota_writes(quota: Quota | None, gap: Gap | None, *, hot: bool) -> list[Write]:
    """List the writes of the quota and of the intervals that it needs.

    A quota's interval shorter than two aggregations becomes longer, at the same
    rate. gap: addresses to skip, because DAMON charges them to the quota.
    """
    top = "contexts/0/schemes/0/quotas"
    intervals = intervals_for(quota, hot=hot)
    writes = [
        (f"{_INTERVALS}/sample_us", str(intervals.sample)),
        (f"{_INTERVALS}/aggr_us", str(intervals.aggregate)),
        (f"{_INTERVALS}/update_us", str(intervals.update)),
    ]
    if quota is None:
        return [*writes, (f"{top}/bytes", "0"), (f"{top}/reset_interval_ms", "0")]
    writes += _gap_writes(gap)
    least_s = 2 * intervals.aggregate / 1_000_000
    times = max(math.ceil(least_s / quota.interval_s), 1)
    interval_ms = round(times * quota.interval_s * 1000)
    writes.append((f"{top}/bytes", str(times * quota.size_bytes)))
    writes.append((f"{top}/reset_interval_ms", str(interval_ms)))
    # DAMON charges memory that is in its place, too. With priority for the hottest
    # memory the rest would never move.
    permil = "1000" if hot else "0"
    writes.append((f"{top}/weights/sz_permil", "0"))
    writes.append((f"{top}/weights/nr_accesses_permil", permil))
    writes.append((f"{top}/weights/age_permil", "0"))
    return writes


def _gap_writes(gap: Gap | None) -> list[Write]:
    top = "contexts/0/schemes/0/filters"
    if gap is None:
        return [(f"{top}/nr_filters", "0")]
    return [
        (f"{top}/nr_filters", "1"),
        (f"{top}/0/type", "addr"),
        (f"{top}/0/matching", "Y"),
        (f"{top}/0/addr_start", str(gap.start)),
        (f"{top}/0/addr_end", str(gap.end)),
    ]


def _pattern_writes(hot: bool) -> list[Write]:
    top = "contexts/0/schemes/0/access_pattern"
    return [
        (f"{top}/sz/min", "0"),
        (f"{top}/sz/max", ANY_SIZE),
        (f"{top}/nr_accesses/min", "1" if hot else "0"),
        (f"{top}/nr_accesses/max", ANY_COUNT),
        (f"{top}/age/min", "0"),
        (f"{top}/age/max", ANY_COUNT),
    ]
