# SPDX-License-Identifier: GPL-2.0-only
"""Parses reports of kernel tests (Documentation/dev-tools/ktap.rst)."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_RESULT = re.compile(
    r"(?P<indent>\s*)(?P<not>not )?ok (?P<number>\d+)(?: -)?(?: (?P<name>[^#]*))?"
    r"(?:# ?(?P<directive>[A-Za-z]+):?\s*(?P<why>.*))?$"
)
_PLAN = re.compile(r"(?P<indent>\s*)1\.\.(?P<count>\d+)(?:\s*# ?SKIP\s*(?P<why>.*))?$")
_SUBTEST = re.compile(r"(?P<indent>\s*)# Subtest: (?P<name>.+)$")
# The report may contain lines of the kernel's log.
_STAMP = re.compile(r"^\[\s*\d+\.\d+\](?:\[[^\]]*\])? ?")


@dataclass(frozen=True)
class Result:
    """One test, or a group of them."""

    name: str
    ok: bool
    skipped: str | None = None
    detail: tuple[str, ...] = ()


@dataclass
class Report:
    """The whole report of a program or a suite."""

    results: list[Result] = field(default_factory=list)
    # Faults of the report itself, such as tests that never ended.
    broken: list[str] = field(default_factory=list)
    skipped: str | None = None

    def problems(self) -> str:
        """Describe all failures; empty if there are none."""
        lines = list(self.broken)
        if not self.results and self.skipped is None:
            lines.append("no test reported a result")
        for result in self.results:
            if not result.ok:
                lines.append(f"not ok {result.name}")
                lines += [f"    {line}" for line in result.detail[-12:]]
        return "\n".join(lines)

    def skips(self) -> dict[str, str]:
        """Return the skipped tests with their reasons."""
        return {r.name: r.skipped for r in self.results if r.skipped is not None}

    def names(self) -> set[str]:
        """Return the names of all tests that ran."""
        return {r.name for r in self.results if r.skipped is None}


class _Level:
    """The tests of one indentation."""

    def __init__(self) -> None:
        self.name = ""
        self.planned: int | None = None
        self.seen = 0


class _Parser:
    def __init__(self) -> None:
        self.report = Report()
        self.levels: dict[int, _Level] = {}
        self.detail: list[str] = []

    def line(self, text: str) -> None:
        if match := _SUBTEST.match(text):
            level = self.levels.setdefault(len(match["indent"]), _Level())
            level.name = match["name"].strip()
        elif match := _PLAN.match(text):
            indent = len(match["indent"])
            level = self.levels.setdefault(indent, _Level())
            level.planned = int(match["count"])
            if match["why"] is not None and indent == 0:
                self.report.skipped = match["why"].strip()
        elif match := _RESULT.match(text):
            self.result(match)
        elif text.startswith("Bail out!"):
            self.report.broken.append(text)
        else:
            self.detail.append(text.strip())

    def result(self, match: re.Match[str]) -> None:
        indent = len(match["indent"])
        for deeper in [i for i in self.levels if i > indent]:
            self.close(self.levels.pop(deeper))
        level = self.levels.setdefault(indent, _Level())
        level.seen += 1
        if int(match["number"]) != level.seen:
            self.report.broken.append(f"test {level.seen} is missing")
            level.seen = int(match["number"])
        above = [self.levels[i].name for i in sorted(self.levels) if i <= indent]
        name = "/".join(
            part for part in [*above, (match["name"] or "").strip()] if part
        )
        directive = (match["directive"] or "").upper()
        skipped = (match["why"] or "").strip() if directive == "SKIP" else None
        ok = match["not"] is None or directive in {"SKIP", "TODO", "XFAIL"}
        self.report.results.append(Result(name, ok, skipped, tuple(self.detail)))
        self.detail.clear()

    def close(self, level: _Level) -> None:
        if level.planned is not None and level.planned != level.seen:
            self.report.broken.append(
                f"{level.seen} of {level.planned} tests reported"
                + (f" in {level.name}" if level.name else "")
                + (f", the last words were: {self.detail[-1]}" if self.detail else "")
            )


def parse(text: str) -> Report:
    """Parse a report; all unknown lines count as detail."""
    parser = _Parser()
    for raw in text.splitlines():
        parser.line(_STAMP.sub("", raw).rstrip())
    for level in parser.levels.values():
        parser.close(level)
    return parser.report
