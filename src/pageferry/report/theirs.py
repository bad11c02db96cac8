# SPDX-License-Identifier: GPL-2.0-only
"""Charts of published tables, which look like those of our own results."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pageferry.report.axes import Axis, Figure, Series, lines
from pageferry.report.svg import Chart, Value
from pageferry.units import BASE_BYTES, format_size, parse_size

Table = Mapping[str, Any]


def _engine(row: Mapping[str, Any]) -> str:
    number = int(row.get("channels") or 0)
    channels = f", {number} channel{'s' if number > 1 else ''}" if number else ""
    return f"published: {row['engine']}{channels}"


def same(tables: Sequence[Table], figure: Figure, axis: Axis) -> list[Chart]:
    """Draw the tables that have the same figure over the same setting."""
    made: list[Chart] = []
    for table in tables:
        wanted = {"engine", "folio_order", figure.published, axis.published}
        if not wanted <= table["rows"][0].keys():
            continue
        sizes: dict[int, dict[str, Series]] = {}
        for row in table["rows"]:
            found = sizes.setdefault(BASE_BYTES << int(row["folio_order"]), {})
            one = found.setdefault(_engine(row), Series(_engine(row), {}, True))
            at = float(row[figure.published])
            one.values[int(row[axis.published])] = Value(at, at, at)
        for size, found in sizes.items():
            shown = format_size(size)
            made += lines(
                figure,
                axis,
                list(found.values()),
                key=f"published-{figure.key}-{shown.replace(' ', '')}",
                title=f"Published: {figure.name.lower()}, folios of {shown}",
            )
    return made


def gains(tables: Sequence[Table]) -> list[Series]:
    """Return published gains over stock Linux: with few, some and many channels."""
    found: dict[str, Series] = {}
    for table in tables:
        rows = table["rows"]
        if not {"engine", "channels", "folio_size", "gb_per_s"} <= rows[0].keys():
            continue
        base = {
            row["folio_size"]: float(row["gb_per_s"])
            for row in rows
            if row["engine"] == "vanilla"
        }
        numbers = sorted({int(row["channels"]) for row in rows} - {0})
        shown = {numbers[0], numbers[len(numbers) // 3], numbers[-1]}
        for row in rows:
            if int(row["channels"]) in shown:
                at = float(row["gb_per_s"]) / base[row["folio_size"]]
                one = found.setdefault(_engine(row), Series(_engine(row), {}, True))
                one.values[parse_size(str(row["folio_size"]))] = Value(at, at, at)
    return list(found.values())
