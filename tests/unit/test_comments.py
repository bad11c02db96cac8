# SPDX-License-Identifier: GPL-2.0-only
"""Comments and docstrings follow docs/STYLE.md, as far as a test can check."""

from __future__ import annotations

import ast
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.plain import AVOIDED, BARE, MAX_WORDS
from helpers.sources import found

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(
    path for top in ("src", "scripts") for path in found(ROOT / top, "**/*.py")
)


def docstrings(source: str) -> Iterator[str]:
    """Yield the paragraphs of all docstrings."""
    for node in ast.walk(ast.parse(source)):
        if isinstance(
            node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef
        ):
            text = ast.get_docstring(node) or ""
            # Indented lines are examples; "name: text" begins an item.
            text = re.sub(r"^ {4}\S.*$", "", text, flags=re.MULTILINE)
            yield from re.split(r"\n\s*\n|\n(?=\w+: )", text)


def comments(path: Path) -> Iterator[str]:
    """Yield the comments of a file; adjacent lines form one comment."""
    text, last = "", -1
    with tokenize.open(path) as stream:
        for token in tokenize.generate_tokens(stream.readline):
            if token.type != tokenize.COMMENT:
                continue
            if token.start[0] != last + 1:
                yield text
                text = ""
            text += f" {token.string.lstrip('# ')}"
            last = token.start[0]
    yield text


@pytest.mark.parametrize("path", FILES, ids=lambda p: str(p.relative_to(ROOT)))
def test_comments_are_plain(path: Path) -> None:
    found = []
    for text in [*docstrings(path.read_text()), *comments(path)]:
        plain = re.sub(r"`[^`]*`", "CODE", re.sub(r"\s+", " ", text)).strip()
        for sentence in re.split(r"(?<=[.!?])\s+(?=[A-Z])", plain):
            if len(sentence.split()) > MAX_WORDS:
                found.append(f"{len(sentence.split())} words: {sentence}")
            if BARE.match(sentence) or AVOIDED.search(sentence):
                found.append(f"avoided words: {sentence}")
    assert found == []
