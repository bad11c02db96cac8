# SPDX-License-Identifier: GPL-2.0-only
"""Pages follow docs/STYLE.md, as far as a test can check, and links have targets."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers.plain import AVOIDED, BARE, MAX_WORDS
from helpers.sources import found

ROOT = Path(__file__).resolve().parents[2]
PAGES = found(ROOT, "*.md", "docs/**/*.md")
KERNEL_PAGES = found(ROOT, "linux/tree/Documentation/**/*.rst")
# Generated from texts that have checks of their own.
MADE = {"commands.md", "counters.md"}


def prose(text: str) -> str:
    """Remove code, and put headings, rows and items into separate paragraphs."""
    text = re.sub(r"<!--.*?-->", "", text, flags=re.DOTALL)
    text = re.sub(r"^ *```.*?^ *```$", "\n", text, flags=re.DOTALL | re.MULTILINE)
    # Indented code; the lines of an item are indented less.
    text = re.sub(r"(?<=\n\n)(?: {4}.*\n)+", "\n", text)
    # Headings, rows of tables and items of lists.
    text = re.sub(r"^(#.*|\|.*)$", r"\n\1\n", text, flags=re.MULTILINE)
    text = re.sub(r"^ *(?:[-*]|\d+\.) +", "\n\n", text, flags=re.MULTILINE)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    # Text in code type counts as one word.
    return re.sub(r"`[^`]*`", "CODE", text)


def kernel_prose(text: str) -> str:
    """Do the same for reStructuredText, without its tables."""
    text = re.sub(r"``[^`]*``", "CODE", text)
    # A literal block: what is indented more than the line that ends with "::".
    text = re.sub(r"(?m)^( *)(.*)::\n(?:\n|\1 +.*\n)+", r"\1\2.\n\n", text)
    text = re.sub(r"(?ms)^=+(?: +=+)+$.*?^=+(?: +=+)+\n(?=\n|\Z)", "\n", text)
    text = re.sub(r"(?m)^(?:=+|-+|\.\. .*| +:\w+:.*)$", "\n", text)
    # Terms stand on a line of their own above an indented text.
    text = re.sub(r"(?m)^([^-\s].*[^.\n])\n(?= {2}\S)", r"\1\n\n", text)
    return re.sub(r"(?m)^ *(?:-|\d\.) +", "\n\n", text)


def sentences(page: Path) -> Iterator[str]:
    """Give the sentences of a page, those in cells of tables among them."""
    text = page.read_text(encoding="utf-8")
    text = kernel_prose(text) if page.suffix == ".rst" else prose(text)
    for paragraph in re.split(r"\n\s*\n", text):
        for cell in re.split(r"(?<!\\)\|", paragraph):
            text = re.sub(r"\s+", " ", cell).strip(" #*")
            for sentence in re.split(r"(?<=[.!?])\s+(?=[\w(\"*])", text):
                if re.search(r"\w", sentence):
                    yield sentence.strip("*")


def anchor(heading: str) -> str:
    """Return the anchor of a heading."""
    words = re.sub(r"[^\w\- ]", "", heading.replace("`", "").strip().lower())
    return words.replace(" ", "-")


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    text = re.sub(r"^```.*?^```$", "", page.read_text(), flags=re.DOTALL | re.MULTILINE)
    for target in re.findall(r"\]\(([^)\s]+)\)", text):
        if re.match(r"[a-z]+:", target):
            continue
        name, _, wanted = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        headings: list[str] = []
        if wanted and file.exists():
            headings = re.findall(r"^#+ +(.+)$", file.read_text(), re.MULTILINE)
        missing = wanted and wanted not in map(anchor, headings)
        if missing or not file.exists():
            dead.append(target)
    assert dead == []


@pytest.mark.parametrize(
    "page",
    [page for page in [*PAGES, *KERNEL_PAGES] if page.name not in MADE],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_sentences_are_plain(page: Path) -> None:
    found = []
    for sentence in sentences(page):
        if len(sentence.split()) > MAX_WORDS:
            found.append(f"{len(sentence.split())} words: {sentence}")
        if BARE.match(sentence):
            found.append(f"begins with a bare word: {sentence}")
        if page.name != "STYLE.md" and AVOIDED.search(sentence):
            found.append(f"avoided words: {sentence}")
    assert found == []


@pytest.mark.parametrize(
    "page",
    [page for page in PAGES if page.parent != ROOT],
    ids=lambda p: str(p.relative_to(ROOT)),
)
def test_a_page_can_be_reached_from_the_readme(page: Path) -> None:
    seen: set[Path] = set()
    left = [ROOT / "README.md"]
    while left:
        at = left.pop()
        if at in seen or at.suffix != ".md" or not at.exists():
            continue
        seen.add(at)
        for target in re.findall(r"\]\(([^)\s#]+)", at.read_text()):
            if not re.match(r"[a-z]+:", target):
                left.append((at.parent / target).resolve())
    assert page in seen
