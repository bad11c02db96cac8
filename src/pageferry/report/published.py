# SPDX-License-Identifier: GPL-2.0-only
"""Published figures of other people, always marked as such."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import resources
from typing import Any

from pageferry import output
from pageferry.errors import PageferryError

# Tables shown beside `bench move-pages`.
MOVE_PAGES = ("move_pages_rfc_v5", "multithreaded_copy_2025")


@dataclass(frozen=True)
class Published:
    """One published table; the provenance names its machine."""

    name: str
    provenance: str
    rows: tuple[Mapping[str, str], ...]

    def as_json(self) -> dict[str, Any]:
        """Return the table with numbers as numbers, marked as published."""
        return {
            "name": self.name,
            "provenance": self.provenance,
            "measured_by": "others",
            "rows": [
                {key: _number(value) for key, value in row.items()} for row in self.rows
            ],
        }


def _number(text: str) -> str | int | float | None:
    if not text:
        return None
    for kind in (int, float):
        try:
            return kind(text)
        except ValueError:
            continue
    return text


def load(name: str) -> Published:
    """Load one table, which must have its provenance."""
    path = resources.files(__package__) / "published" / f"{name}.csv"
    text = path.read_text(encoding="utf-8")
    first, _, rest = text.partition("\n")
    if not first.startswith("# "):
        raise PageferryError("published table without its origin", value=f"{name}.csv")
    rows = tuple(csv.DictReader(rest.splitlines()))
    if not rows or any(None in row or None in row.values() for row in rows):
        raise PageferryError("published table is damaged", value=f"{name}.csv")
    return Published(name, first.removeprefix("# "), rows)


def _move_pages_table(table: Published) -> str:
    """Show engines by folio sizes, as in the posting."""
    sizes = list(dict.fromkeys(row["folio_size"] for row in table.rows))
    cells: dict[tuple[str, str], dict[str, str]] = {}
    for row in table.rows:
        cell = f"{row['gb_per_s']}±{row['plus_minus']}"
        key = (row["engine"], row["channels"])
        cells.setdefault(key, {})[row["folio_size"]] = cell
    lines = [
        [engine, channels, *[found.get(size, "-") for size in sizes]]
        for (engine, channels), found in cells.items()
    ]
    return output.table(["engine", "channels", *sizes], lines)


def _threads_table(table: Published) -> str:
    """Show thread counts: the longest list of each machine and folio size."""
    groups: dict[tuple[str, str], dict[int, dict[str, str]]] = {}
    for row in table.rows:
        group = groups.setdefault((row["machine"], row["folio_size"]), {})
        group.setdefault(int(row["folios"]), {})[row["threads"]] = row["gb_per_s"]
    threads = list(dict.fromkeys(row["threads"] for row in table.rows))
    lines = []
    for (machine, size), lists in groups.items():
        longest = max(lists)
        found = [lists[longest].get(count, "-") for count in threads]
        lines.append([machine, size, str(longest), *found])
    return output.table(["machine", "folio", "folios", *threads], lines)


def render_move_pages() -> str:
    """Format the table beside `bench move-pages`, in GB/s."""
    parts = ["Published by others, on their machines; GB/s does not compare with ours:"]
    for table in map(load, MOVE_PAGES):
        body = (
            _threads_table(table)
            if "threads" in table.rows[0]
            else _move_pages_table(table)
        )
        parts.append(f"{table.provenance}\n{body}")
    return "\n\n".join(parts)
