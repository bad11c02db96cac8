# SPDX-License-Identifier: GPL-2.0-only
"""The writes that let DAMON move hot and cold memory. This module writes no files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from pageferry.damon.scheme import ANY_COUNT, ANY_SIZE, Write, target_writes
from pageferry.sysfs.pagebits import PAGE
from pageferry.tier.control import LOOK_S, Setting
from pageferry.tier.plan import Move, Range, Watch

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
# DAMON waits for so long after each change before it applies schemes again. If it waited
# for an aggregation, changes could follow each other without a turn between them.
APPLY_US = AGGREGATE_US // 2
# A quota is for the time between two looks, however many turns DAMON has in it: on a busy
# machine there are few. DAMON reads a quota when an interval begins.
_RESET_MS = round(0.9 * LOOK_S * 1000)
# Memory in its place uses up this part of its size, so that a turn ends.
_IN_PLACE = 64
_SCHEMES = "contexts/0/schemes"


@dataclass(frozen=True)
class Features:
    """The abilities of the running kernel's DAMON."""

    # Several destinations of a scheme. `tier` does not use them, but a kernel that has
    # them migrates by virtual address, too.
    dests: bool = False
    # Migration at all.
    target_nid: bool = False
    # Quotas that memory in its place uses up in part only.
    fail_charge: bool = False
    # Files of a scheme that show these abilities.
    FILES: ClassVar = ("dests/nr_dests", "target_nid", "quotas/fail_charge_num")


def start_writes(
    watch: Watch, setting: Setting, features: Features | None = None
) -> list[Write]:
    """List the writes below kdamonds/N that configure a kdamond without starting it.

    Each move has a second scheme, which has filters for all pages. It makes each page old
    that the move might take, and leaves it where it is.
    """
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
        (f"{_SCHEMES}/nr_schemes", str(2 * len(watch.moves))),
    ]
    for at, move in enumerate(2 * watch.moves):
        writes += _scheme(at, move, watch)
        if features is not None and features.fail_charge:
            top = f"{_SCHEMES}/{at}/quotas"
            writes.append((f"{top}/fail_charge_num", "1"))
            writes.append((f"{top}/fail_charge_denom", str(_IN_PLACE)))
    return [*writes, *setting_writes(watch, setting)]


def setting_writes(watch: Watch, setting: Setting) -> list[Write]:
    """List the writes that set the rate of each scheme, and when memory is cold."""
    cold_age = max(round(setting.cold_s * 1_000_000 / AGGREGATE_US), 1)
    quotas = [_quota(rate) for rate in setting.rates]
    # No bytes are no limit.
    quotas += [0 if setting.clearing else 1] * len(watch.moves)
    writes = [(f"{_SCHEMES}/{at}/quotas/bytes", str(q)) for at, q in enumerate(quotas)]
    return writes + [
        (f"{_SCHEMES}/{at}/access_pattern/age/min", str(cold_age))
        for at, move in enumerate(watch.moves)
        if not move.hot
    ]


def _quota(rate: int) -> int:
    """Return the bytes of an interval. One byte is too little for a page.

    DAMON goes on after the memory for which a quota was used up. Of a quota with a part of
    a page, that part would stay, and each turn would begin with the same memory.
    """
    if not rate:
        return 1
    return max(int(rate * LOOK_S) // PAGE, 1) * PAGE


def keep_writes(watch: Watch) -> list[Write]:
    """List the writes for other processes, and for other memory that stays."""
    writes = target_writes(watch.pids)
    for at, move in enumerate(2 * watch.moves):
        writes += _filters(at, move, watch.keep, clears=at >= len(watch.moves))
    return writes


def _ranges(ranges: tuple[Range, ...]) -> list[Write]:
    top = "contexts/0/targets/0/regions"
    writes = [("contexts/0/targets/nr_targets", "1")]
    writes.append((f"{top}/nr_regions", str(len(ranges))))
    for at, (start, end) in enumerate(ranges):
        writes += [(f"{top}/{at}/start", str(start)), (f"{top}/{at}/end", str(end))]
    return writes


def _scheme(at: int, move: Move, watch: Watch) -> list[Write]:
    top = f"{_SCHEMES}/{at}"
    clears = at >= len(watch.moves)
    accesses = (str(_HOT_ACCESSES), ANY_COUNT) if move.hot else ("0", "0")
    # The age of cold memory changes.
    age = _HOT_AGE
    if clears:
        accesses, age = ("0", ANY_COUNT), 0
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
        (f"{top}/apply_interval_us", str(APPLY_US)),
        (f"{top}/access_pattern/sz/min", "0"),
        (f"{top}/access_pattern/sz/max", ANY_SIZE),
        (f"{top}/access_pattern/nr_accesses/min", accesses[0]),
        (f"{top}/access_pattern/nr_accesses/max", accesses[1]),
        (f"{top}/access_pattern/age/min", str(age)),
        (f"{top}/access_pattern/age/max", ANY_COUNT),
        (f"{top}/quotas/reset_interval_ms", str(_RESET_MS)),
        (f"{top}/quotas/weights/sz_permil", "0"),
        (f"{top}/quotas/weights/nr_accesses_permil", weights[0]),
        (f"{top}/quotas/weights/age_permil", weights[1]),
        *_filters(at, move, watch.keep, clears=clears),
    ]


def _filters(
    at: int, move: Move, keep: tuple[Range, ...], *, clears: bool
) -> list[Write]:
    """A filter leaves out what matches: bound memory, and pages of the other kind.

    DAMON knows the heat of a region. The filter looks at each page, and makes it old. Two
    filters together leave out all pages.
    """
    top = f"{_SCHEMES}/{at}/filters"
    writes = [(f"{top}/nr_filters", str(len(keep) + 1 + clears))]
    for number, (start, end) in enumerate(keep):
        writes += [
            (f"{top}/{number}/type", "addr"),
            (f"{top}/{number}/matching", "Y"),
            (f"{top}/{number}/addr_start", str(start)),
            (f"{top}/{number}/addr_end", str(end)),
        ]
    kinds = ["Y", "N"] if clears else ["N" if move.hot else "Y"]
    for number, matching in enumerate(kinds, len(keep)):
        writes += [
            (f"{top}/{number}/type", "young"),
            (f"{top}/{number}/matching", matching),
        ]
    return writes
