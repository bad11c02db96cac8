# SPDX-License-Identifier: GPL-2.0-only
"""Options, plans, rows and cells of `bench demotion` and `bench promotion`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pageferry.bench import options
from pageferry.bench.lines import Moved
from pageferry.bench.options import Option, option
from pageferry.bench.plan import Plan
from pageferry.bench.rows import offered, total
from pageferry.report.tables import UNKNOWN, Column, moved_pages
from pageferry.results import schema
from pageferry.results.schema import Row
from pageferry.units import format_size


class ByMethod(Moved, kw_only=True):
    """Memory that moved in one of several ways."""

    method: str


class Tiering(ByMethod, kw_only=True):
    """Memory that the kernel moved without a request for pages."""

    left_bytes: int


def tier_options(*nodes: str) -> tuple[Option, ...]:
    """List the common options, except for those of the output.

    nodes: the ranks of the default nodes; see options.node_options().
    """
    return (
        option("--sizes", "folio sizes from 4K to 2M", "LIST", "4K,2M"),
        option(
            "--engines", "stock is always measured", "LIST", ",".join(options.ENGINES)
        ),
        *options.ONE_OF_EACH,
        option("--total", "bytes in each measurement", "SIZE", "64M"),
        options.ROUNDS,
        *options.node_options(*nodes),
        options.REACH,
        options.LAYOUTS,
        options.TIMEOUT,
    )


@dataclass(frozen=True, kw_only=True)
class TierPlan(Plan):
    """The plan of one run in either direction."""

    slowest_bytes_per_s: ClassVar[int] = 2_000_000


def shared(args: argparse.Namespace) -> dict[str, Any]:
    """Check the common options."""
    return {
        **options.nodes_of(args, 63),
        "sizes": options.parse_sizes(args.sizes),
        "engines": options.parse_engines(args.engines),
        "total_bytes": options.parse_total(args.total),
        **options.one_of_each(args),
    }


def kind(sample: ByMethod) -> tuple[str, int]:
    """Return the method."""
    return sample.method, sample.folio_bytes


def tier_part(
    bench: str,
    mine: Sequence[Tiering],
    arrived: int,
    **own: Any,  # noqa: ANN401
) -> dict[str, Any]:
    """Make a part of a row.

    `arrived` is the memory on the target at the end: some comes back.
    """
    engine_bytes, cpu_bytes = offered(mine)
    share = None
    if engine_bytes is not None and cpu_bytes is not None:
        # The CPU also moved folios that no engine was offered.
        copied = max(engine_bytes + cpu_bytes, arrived)
        share = engine_bytes / copied if copied else None
    part = schema.PARTS[bench](
        method=mine[0].method,
        left_bytes=total([s.left_bytes for s in mine]),
        cpu_bytes=cpu_bytes,
        share_offloaded=share,
        folios_per_batch=_per_batch(mine),
        **own,
    )
    return {bench: part}


def _per_batch(mine: Sequence[Tiering]) -> float | None:
    """Divide all folios by batches, including those that the engine left to the CPU."""
    copied = total([sample.engine_bytes for sample in mine])
    left = total([sample.cpu_bytes for sample in mine])
    batches = total([sample.batches for sample in mine])
    if copied is None or left is None or not batches or not copied + left:
        return None
    return (copied + left) / mine[0].folio_bytes / batches


def counted_line(rows: Sequence[Row]) -> str:
    """Describe the moved and verified amount."""
    return (
        f"{moved_pages(rows):,} pages moved, the node of every page counted, "
        "every byte verified"
    )


def _part(row: Row) -> schema.ByTier:
    return row.promotion if row.bench == "promotion" else row.demotion


def _offloaded(row: Row) -> str:
    share = _part(row).share_offloaded
    return "-" if share is None else f"{share * 100:.0f}%"


def _left(row: Row) -> str:
    left = _part(row).left_bytes
    return UNKNOWN if left is None else format_size(left)


OFFLOADED: Column = ("offloaded", _offloaded)
LEFT: Column = ("left", _left)
