# SPDX-License-Identifier: GPL-2.0-only
"""Lines of bench/tiers, and the rows that follow from them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from statistics import fmean, median

from pageferry.bench.lines import Line, Timed
from pageferry.bench.rows import counted, sort_by, total
from pageferry.bench.tiers.policies import NAMES
from pageferry.results import schema
from pageferry.results.schema import RatioSpread, Row
from pageferry.results.stats import spread

# All hot memory fits the fast tier, so the best share is 1.
SETTLED_PERMILLE = 950
# A round has so many parts over time.
PARTS = 24


class Used(Timed, tag="tiers", kw_only=True):
    """A measurement of one policy with one load. Times begin with the first access."""

    load: str
    memory: str
    folio_bytes: int
    moved_bytes: int
    elapsed_ns: int
    hot_bytes: int
    program_bytes: int
    accesses: int
    longest_access_ns: int
    stall_some_us: int | None
    # The begin of each phase.
    phases_ms: list[int]
    # Looks, and the part of late accesses that the fast tier served.
    at_ms: list[int]
    fast_permille: list[int]
    followed_pages: int
    up_pages: int
    down_pages: int
    ping_pong_pages: int
    goals: bool | None = None
    pgmigrate_success: int | None = None
    pgpromote_success: int | None = None
    pgdemote_kswapd: int | None = None
    pgdemote_direct: int | None = None
    pgdemote_khugepaged: int | None = None
    # 6.12 does not have this one.
    pgdemote_proactive: int | None = None

    @property
    def share(self) -> float:
        """Return the part of all accesses that the fast tier served."""
        return fmean(self.fast_permille) / 1000

    @property
    def demoted(self) -> int | None:
        """Return the pages that reclaim demoted."""
        kinds = (self.pgdemote_kswapd, self.pgdemote_direct, self.pgdemote_khugepaged)
        known = total(kinds)
        return None if known is None else known + (self.pgdemote_proactive or 0)


class LeftOut(Line, tag="left_out", kw_only=True):
    """A policy that did not start, with the reason."""

    engine: str
    reason: str


def settled(sample: Used) -> Iterator[tuple[int, bool]]:
    """Yield for each phase how long it took to settle, and whether it did."""
    ends = [*sample.phases_ms[1:], round(sample.elapsed_ns / 1e6)]
    for begin, end in zip(sample.phases_ms, ends, strict=True):
        # A look at the end of a phase shows accesses of that phase.
        looks = [
            (at, share)
            for at, share in zip(sample.at_ms, sample.fast_permille, strict=True)
            if begin < at <= end
        ]
        below = [n for n, (_, share) in enumerate(looks) if share < SETTLED_PERMILLE]
        first = below[-1] + 1 if below else 0
        done = first < len(looks)
        yield (looks[first][0] if done else end) - begin, done


def make_rows(
    lines: Sequence[Line], seconds: int, fast_ns: int, slow_ns: int
) -> list[Row]:
    """Make a row for each policy and load."""
    grouped = sort_by(
        counted(lines, Used), lambda s: (s.load, s.memory, s.folio_bytes, s.engine)
    )
    rows = [
        _row(mine, _part(mine, seconds, fast_ns, slow_ns)) for mine in grouped.values()
    ]
    order = list(dict.fromkeys((row.tiers.load, row.tiers.memory) for row in rows))
    return sorted(rows, key=lambda row: (order.index(kind(row)[:2]), *_rank(row)))


def kind(row: Row) -> tuple[str | None, str | None, int]:
    """Return what rows have in common whose policies compare."""
    return row.tiers.load, row.tiers.memory, row.folio_bytes


def _rank(row: Row) -> tuple[int, int]:
    return row.folio_bytes, NAMES.index(row.engine)


def _row(mine: Sequence[Used], part: schema.Tiers) -> Row:
    first = mine[0]
    return Row(
        bench="tiers",
        engine=first.engine,
        channels=0,
        threads=1,
        folio_bytes=first.folio_bytes,
        moved_bytes=round(fmean(sample.moved_bytes for sample in mine)),
        rounds=len(mine),
        verified=True,
        tiers=part,
    )


def _ratios(values: Sequence[float]) -> RatioSpread:
    middle, least, most = median(values), min(values), max(values)
    return RatioSpread(median=round(middle, 4), min=round(least, 4), max=round(most, 4))


def _part(
    mine: Sequence[Used], seconds: int, fast_ns: int, slow_ns: int
) -> schema.Tiers:
    first = mine[0]
    phases = [list(settled(sample)) for sample in mine]
    stalls = [s.stall_some_us for s in mine if s.stall_some_us is not None]
    promoted = sum(sample.up_pages for sample in mine)
    came_back = sum(sample.ping_pong_pages for sample in mine)
    at_ms, shares = _over_time(mine, seconds * 1000)

    def by_sample(pages: Callable[[Used], int]) -> list[float]:
        return [pages(s) * s.program_bytes / s.followed_pages for s in mine]

    return schema.Tiers(
        load=first.load,
        memory=first.memory,
        hot_bytes=first.hot_bytes,
        program_bytes=first.program_bytes,
        fast_share=_ratios([sample.share for sample in mine]),
        settled_ms=spread([fmean(ms for ms, _ in each) for each in phases]),
        phase_settled_ms=[
            round(median(ms for ms, _ in each)) for each in zip(*phases, strict=True)
        ],
        phases=sum(len(each) for each in phases),
        settled_phases=sum(done for each in phases for _, done in each),
        migrated_bytes=spread([sample.moved_bytes for sample in mine]),
        up_bytes=spread(by_sample(lambda s: s.up_pages)),
        down_bytes=spread(by_sample(lambda s: s.down_pages)),
        ping_pong_share=round(came_back / promoted, 4) if promoted else None,
        pgpromote_success=total([sample.pgpromote_success for sample in mine]),
        pgdemote=total([sample.demoted for sample in mine]),
        stall_some_us=spread(stalls) if stalls else None,
        longest_access_ns=spread([sample.longest_access_ns for sample in mine]),
        model_access_ns=spread(
            [s.share * fast_ns + (1 - s.share) * slow_ns for s in mine]
        ),
        model_fast_ns=fast_ns,
        model_slow_ns=slow_ns,
        goals=first.goals,
        at_ms=at_ms,
        share_over_time=shares,
    )


def _over_time(
    mine: Sequence[Used], whole_ms: int
) -> tuple[list[int], list[RatioSpread]]:
    """Divide each round into parts, and combine the rounds."""
    ends, shares = [], []
    for part in range(PARTS):
        begin, end = part * whole_ms / PARTS, (part + 1) * whole_ms / PARTS
        last = part == PARTS - 1
        means = []
        for sample in mine:
            # The last look may be late.
            looks = zip(sample.at_ms, sample.fast_permille, strict=True)
            here = [p for at, p in looks if begin < at and (last or at <= end)]
            if here:
                means.append(fmean(here) / 1000)
        if means:
            ends.append(round(end))
            shares.append(_ratios(means))
    return ends, shares
