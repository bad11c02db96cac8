# SPDX-License-Identifier: GPL-2.0-only
"""Print docs/reference/counters.md, made from the kernel's ABI files.

A test compares the page with this output, so the page cannot fall behind:
    python3 scripts/counter_reference.py > docs/reference/counters.md
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

ABI = Path(__file__).resolve().parents[1] / "linux/tree/Documentation/ABI/testing"
SYSFS = "/sys/kernel/mm/migrate_offload"

HEAD = """\
# Counters

Made from the kernel's ABI files by `scripts/counter_reference.py`; a test keeps it
current. To change a text, edit the ABI file in `linux/tree/Documentation/ABI/testing/`.

Linux counts `pgmigrate_success` and `pgmigrate_fail` in `/proc/vmstat` for all
migrations, with and without an engine. Only `engine_folios` shows that an engine copied.

See also [tracepoints](tracepoints.md), the [glossary](glossary.md), and
[counters of cgroups](../../linux/tree/Documentation/admin-guide/mm/migrate_offload.rst).
"""

# The sections of the page: title, ABI file, and the entries that it shows.
SECTIONS: tuple[tuple[str, str, tuple[str, ...]], ...] = (
    (
        "By reason and by engine",
        "sysfs-kernel-mm-migrate-offload",
        (f"{SYSFS}/stats/reasons/<reason>/",),
    ),
    (
        "Times by reason",
        "sysfs-kernel-mm-migrate-offload",
        (f"{SYSFS}/stats/reasons/<reason>/unmapped_*",),
    ),
    ("Held folios", "sysfs-kernel-mm-migrate-offload", (f"{SYSFS}/held_folios",)),
    ("Promotion", "sysfs-kernel-mm-migrate-offload", (f"{SYSFS}/promotion/",)),
    (
        "dcbm",
        "sysfs-module-dcbm",
        (
            "/sys/module/dcbm/folios_migrated",
            "/sys/module/dcbm/held_folios_now",
            "/sys/module/dcbm/channels/<channel>/",
        ),
    ),
)

_BORDER = re.compile(r"=+( +=+)+")


@dataclass
class Entry:
    """One entry of an ABI file: the paths that it describes, and its text."""

    paths: list[str]
    lines: list[str]


def entries(text: str) -> Iterator[Entry]:
    """Read an ABI file."""
    entry: Entry | None = None
    field = ""
    for line in text.expandtabs(8).splitlines():
        if found := re.match(r"([A-Z][A-Za-z]*):\s*(.*)", line):
            previous, field, rest = field, found[1], found[2]
            if field == "What" and (entry is None or previous != "What"):
                if entry is not None:
                    yield entry
                entry = Entry([], [])
            if entry is not None and field == "What":
                entry.paths.append(rest)
            if entry is None or field != "Description":
                continue
            line = " " * found.start(2) + rest
        if entry is not None and field == "Description":
            entry.lines.append(line[16:].rstrip())
    if entry is not None:
        yield entry


def code(text: str) -> str:
    """Set the names of files, settings and constants in code type."""
    text = text.replace("``", "`").replace("|", "\\|")
    text = re.sub(r"(?<=\S)  +", " ", text)
    path, word, constant = (
        r"(?:/[\w<>*]+)+/?",
        r"[a-z]+(?:_[a-z*]+)+",
        r"[A-Z]+_[A-Z_]+",
    )
    name = rf"(?<![`\w/.])({path}|{word}(?:\(\))?|{constant})(?![`\w])"
    return re.sub(name, r"`\1`", text)


def is_border(line: str) -> bool:
    """Say whether a line is a border of a simple table."""
    return _BORDER.fullmatch(line.strip()) is not None


def table(lines: Sequence[str]) -> list[str]:
    """Turn a simple table of reStructuredText, with both its borders, to Markdown."""
    first = re.match(r"=+ +", lines[0].lstrip())
    assert first is not None
    column = len(lines[0]) - len(lines[0].lstrip()) + first.end()
    rows: list[list[str]] = []
    header = ["file", "meaning"]
    for line in lines[1:-1]:
        if is_border(line):
            # All rows until here are the header.
            header = [" ".join(row[i] for row in rows).strip() for i in (0, 1)]
            rows = []
        elif line[:column].strip():
            name, _, rest = line.strip().partition(" ")
            rows.append([name, rest.strip()])
        elif rows:
            rows[-1][1] += " " + line.strip()
    made = [f"| {header[0]} | {header[1]} |", "| --- | --- |"]
    return made + [
        f"| `{name.strip('`')}` | {code(text.strip())} |" for name, text in rows
    ]


def body(lines: Sequence[str]) -> Iterator[str]:
    """Turn the description of an entry into the lines of a page."""
    inside: list[str] = []
    for line, after in zip(lines, [*lines[1:], ""], strict=True):
        if not inside and not is_border(line):
            yield code(line)
            continue
        inside.append(line)
        # A border with a row behind it is the top, or the one below a header.
        if len(inside) > 1 and is_border(line) and not after.strip():
            yield from table(inside)
            inside = []


def reference() -> str:
    """Write the whole page."""
    parts = [HEAD]
    for title, name, wanted in SECTIONS:
        known = {entry.paths[0]: entry for entry in entries((ABI / name).read_text())}
        parts.append(f"\n## {title}\n")
        for path in wanted:
            if path not in known:
                raise SystemExit(f"{ABI / name}: no entry for {path}")
            entry = known[path]
            listed = "\n".join(f"- `{each}`" for each in entry.paths)
            text = "\n".join(body(entry.lines)).strip()
            parts.append(f"\n{listed}\n\n{text}\n")
    return "".join(parts)


if __name__ == "__main__":
    sys.stdout.write(reference())
