# SPDX-License-Identifier: GPL-2.0-only
"""Which C files use each other in a circle."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path

_IGNORED = re.compile(r'/\*.*?\*/|"(?:\\.|[^"\\])*"', re.DOTALL)
# A function's definition begins at the start of a line, and ends before a brace.
_FUNCTION = re.compile(
    r"^(?!static\b)[A-Za-z_][\w \t\n*]*?\b(\w+)\([^;{]*\)[^;{()]*\{", re.MULTILINE
)
_VARIABLE = re.compile(
    r"^(?!static\b|extern\b|typedef\b|return\b)[A-Za-z_][\w \t*]*?\b(\w+)"
    r"(?:\[[^\]\n]*\])?\s*(?:=|;)",
    re.MULTILINE,
)
# DEFINE_MUTEX(name), LIST_HEAD(name), and so on.
_MACRO = re.compile(r"^(?:DEFINE_\w+|LIST_HEAD|DECLARE_\w+)\((\w+)", re.MULTILINE)


def uses(files: Iterable[Path]) -> dict[str, set[str]]:
    """Return for each file the others that define what it uses."""
    texts = {path.name: _IGNORED.sub(" ", path.read_text()) for path in files}
    defined = {
        name: path
        for path, text in texts.items()
        for pattern in (_FUNCTION, _VARIABLE, _MACRO)
        for name in pattern.findall(text)
    }
    return {
        path: {defined[word] for word in set(re.findall(r"\w+", text)) & set(defined)}
        - {path}
        for path, text in texts.items()
    }


def _reached(graph: dict[str, set[str]], start: str) -> set[str]:
    """Return all files that one uses, by way of others, too."""
    seen: set[str] = set()
    todo = [start]
    while todo:
        new = graph[todo.pop()] - seen
        seen |= new
        todo.extend(new)
    return seen


def large_circle(graph: dict[str, set[str]]) -> set[str]:
    """Return more than two files that use each other, or an empty set."""
    reached = {name: _reached(graph, name) for name in graph}
    for name, others in reached.items():
        circle = {other for other in others if name in reached[other]}
        if len(circle) > 2:
            return circle
    return set()
