# SPDX-License-Identifier: GPL-2.0-only
"""Tables of docs/results/compare.md, from the documents beside that page."""

from __future__ import annotations

import json
import re
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

Document = dict[str, Any]
QUIET, NONE, MTCOPY = "quiet", "none", "mtcopy"
COLUMNS = {"stock": "stock Linux", NONE: "ours, no engine", MTCOPY: "ours, mtcopy"}
# The rate and the latency of each program.
FIGURES = {
    "gups": ("updates", "p99"),
    "embed": ("rows", "p99"),
    "redis": ("GET", "GET p99"),
}


def read(path: Path) -> list[Document]:
    """Read a file: each line is a document of `pageferry compare --json`."""
    return [json.loads(line) for line in path.read_text().splitlines()]


def variants(document: Document, figure: str) -> dict[str, Mapping[str, Any]]:
    """Return a figure of each variant."""
    rows = {row["name"]: row["variants"] for row in document["figures"]}
    return {one["variant"]: one for one in rows[figure]}


def _share(document: Document, figure: str, name: str) -> str:
    """Divide each run by the quiet run of its round."""
    found = variants(document, figure)
    pairs = zip(found[name]["values"], found[QUIET]["values"], strict=True)
    ratios = [one / base for one, base in pairs]
    low, high = min(ratios), max(ratios)
    return f"{statistics.median(ratios):.2f} ({low:.2f}..{high:.2f})"


def _moved(document: Document, name: str) -> str:
    one = variants(document, "migrated")[name]
    return f"{one['median']:.0f} ({one['min']:.0f}..{one['max']:.0f})"


def said(document: Document, figure: str) -> str:
    """Return the verdict about mtcopy, compared with no engine."""
    verdict: str = variants(document, figure)[MTCOPY]["verdict"]
    return verdict.partition(":")[0]


def _pressures(documents: Sequence[Document]) -> dict[str, dict[str, Document]]:
    """Map each pressure to the documents, by variant."""
    found: dict[str, dict[str, Document]] = {}
    for document in documents:
        names = variants(document, "migrated").keys() - {QUIET}
        found.setdefault(document["pressure"], {}).update(
            dict.fromkeys(names, document)
        )
    return found


def _table(documents: Sequence[Document], figure: str | None) -> str:
    """Lay out a figure; None: the memory that migrated."""
    head = ["pressure", *COLUMNS.values()]
    rows = []
    for pressure, by_variant in _pressures(documents).items():
        row = [f"`{pressure}`"]
        for name in COLUMNS:
            document = by_variant[name]
            row.append(
                _moved(document, name)
                if figure is None
                else _share(document, figure, name)
            )
        rows.append(row)
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def _verdict(documents: Sequence[Document], figure: str) -> str:
    """Say in words where mtcopy makes a difference."""
    by_verdict: dict[str, list[str]] = {}
    for pressure, by_variant in _pressures(documents).items():
        verdict = said(by_variant[MTCOPY], figure)
        by_verdict.setdefault(verdict, []).append(f"`{pressure}`")
    parts = [f"{word} with {', '.join(names)}" for word, names in by_verdict.items()]
    return f"{figure} with mtcopy, compared with no engine: {'; '.join(parts)}."


def _loads(documents: Sequence[Document]) -> str:
    loads = [document["machine"]["host_other_load"] for document in documents]
    return (
        f"Other work took {min(loads):.0%} to {max(loads):.0%} of the host's CPU time."
    )


def block(program: str, documents: Sequence[Document]) -> str:
    """Write the part of the page about a program."""
    rate, latency = FIGURES[program]
    command = " ".join(documents[0]["command"])
    parts = [f"`{command}`. {_loads(documents)}"]
    for figure in (rate, latency):
        title = f"{figure}, as a part of the quiet run of the same round:"
        parts += [title, _table(documents, figure), _verdict(documents, figure)]
    parts += ["Memory that migrated, in MiB:", _table(documents, None)]
    return "\n\n".join(parts)


def page(old: str, top: Path) -> str:
    """Replace the parts of the page that have tables."""
    for program in FIGURES:
        begin, end = f"<!-- begin {program} -->", f"<!-- end {program} -->"
        text = block(program, read(top / f"compare-{program}.jsonl"))
        pattern = re.compile(f"{begin}.*{end}", re.DOTALL)
        old, count = pattern.subn(f"{begin}\n\n{text}\n\n{end}", old)
        assert count == 1, program
    return old
