# SPDX-License-Identifier: GPL-2.0-only
"""All states of a file that hooks change, for any choice of their hunks.

A weave holds the lines of all states. Each line knows the hunk that adds it, and the
hunk that removes it. A choice of hunks shows the lines that these leave. So the order
in which a series takes the hunks is free, and context cannot mislead a hunk.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from pageferry.errors import ExitCode, PageferryError

_FILE = re.compile(rb"\+\+\+ ([^\t\n]+)")
_HUNK = re.compile(rb"@@ -(\d+)(?:,(\d+))? \+(\d+)(?:,(\d+))? @@ ?(.*)\n?")
_NO_NEWLINE = b"\\"


@dataclass(frozen=True)
class Unit:
    """One hunk of a hook, by the hook's name, the file and a number from 1 on."""

    hook: str
    file: str
    number: int

    def __str__(self) -> str:
        return f"hunk {self.number} of {self.file} in {self.hook}"


@dataclass(frozen=True)
class Hunk:
    """The content of a hunk: each line with its sign, and its old place."""

    unit: Unit
    start: int
    function: bytes
    lines: tuple[tuple[bytes, bytes], ...]

    @property
    def old(self) -> list[bytes]:
        """Return the lines that the hunk expects."""
        return [text for sign, text in self.lines if sign != b"+"]

    def mentions(self, text: str) -> bool:
        """Say whether a text, such as the name of a function, is in the hunk."""
        wanted = text.encode()
        return wanted in self.function or any(wanted in line for _, line in self.lines)


def parse(hook: str, content: bytes) -> list[Hunk]:
    """Read all hunks of a hook."""
    hunks: list[Hunk] = []
    file, number = "", 0
    lines = content.splitlines(keepends=True)
    at = 0
    while at < len(lines):
        named = _FILE.match(lines[at])
        begins = _HUNK.match(lines[at])
        at += 1
        if named:
            file, number = named[1].decode().split("/", 1)[-1], 0
        if not begins:
            continue
        number += 1
        unit = Unit(hook, file, number)
        body, at = _body(lines, at, int(begins[2] or 1), int(begins[4] or 1))
        hunks.append(Hunk(unit, int(begins[1]), begins[5], body))
    return hunks


def _body(
    lines: list[bytes], at: int, old: int, new: int
) -> tuple[tuple[tuple[bytes, bytes], ...], int]:
    """Read the lines of a hunk; returns them and the number of the next line."""
    body: list[tuple[bytes, bytes]] = []
    while at < len(lines):
        # Some editors strip the blank of an empty context line.
        line = b" \n" if lines[at] == b"\n" else lines[at]
        if line.startswith(_NO_NEWLINE):
            body[-1] = (body[-1][0], body[-1][1].rstrip(b"\n"))
        elif old > 0 or new > 0:
            old -= not line.startswith(b"+")
            new -= not line.startswith(b"-")
            body.append((line[:1], line[1:]))
        else:
            break
        at += 1
    return tuple(body), at


@dataclass
class _Line:
    text: bytes
    added: Unit | None = None
    removed: Unit | None = None


@dataclass
class Weave:
    """The lines of all states of one file."""

    file: str
    exists: bool
    lines: list[_Line]
    units: list[Unit] = field(default_factory=list)
    needs: dict[Unit, set[Unit]] = field(default_factory=dict)

    @classmethod
    def begin(cls, file: str, pristine: bytes | None) -> Weave:
        """Start with the base release's file, or without one."""
        lines = (pristine or b"").splitlines(keepends=True)
        return cls(file, pristine is not None, [_Line(line) for line in lines])

    def apply(self, hunks: Iterable[Hunk]) -> None:
        """Add the hunks of one hook to the state with all hooks before it."""
        shift = 0
        for hunk in hunks:
            shown = [i for i, line in enumerate(self.lines) if line.removed is None]
            texts = [self.lines[i].text for i in shown]
            old = hunk.old
            # A hunk without old lines stands after the line that it names.
            expected = hunk.start - 1 + shift if old else hunk.start + shift
            found = _find(texts, old, expected)
            if found is None:
                raise PageferryError(
                    "a hook does not apply",
                    value=str(hunk.unit),
                    code=ExitCode.NOT_STARTED,
                )
            self._insert(hunk, shown, found)
            grown = sum(sign == b"+" for sign, _ in hunk.lines)
            shrunk = sum(sign == b"-" for sign, _ in hunk.lines)
            shift += found - expected + grown - shrunk

    def _insert(self, hunk: Hunk, shown: list[int], found: int) -> None:
        unit = hunk.unit
        self.units.append(unit)
        needs = self.needs.setdefault(unit, set())
        at = shown[found - 1] + 1 if found else 0
        for sign, text in hunk.lines:
            if sign == b"+":
                self.lines.insert(at, _Line(text, added=unit))
                at += 1
                continue
            while self.lines[at].removed is not None:
                at += 1
            line = self.lines[at]
            if sign == b"-":
                line.removed = unit
                if line.added is not None and line.added != unit:
                    needs.add(line.added)
            at += 1

    def state(self, chosen: Collection[Unit]) -> bytes | None:
        """Return the file's content with some of the hunks."""
        if not self.exists and not any(unit in chosen for unit in self.units):
            return None
        return b"".join(
            line.text
            for line in self.lines
            if (line.added is None or line.added in chosen)
            and line.removed not in chosen
        )


def _find(texts: list[bytes], old: list[bytes], expected: int) -> int | None:
    """Find lines, as near as possible to a place, as patch does."""
    last = len(texts) - len(old)
    for distance in range(len(texts) + 1):
        for at in (expected + distance, expected - distance):
            if 0 <= at <= last and texts[at : at + len(old)] == old:
                return at
    return None
