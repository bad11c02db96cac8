# SPDX-License-Identifier: GPL-2.0-only
"""New Makefiles and Kconfigs that grow from patch to patch.

Every line has the number of the patch that adds it. Comments and blank lines come with
the lines that follow them; those at the head of the file come with the first.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_ENTRY = re.compile(
    r"(config|menuconfig|choice|endchoice|menu|endmenu|if|endif|source|comment|"
    r"mainmenu)\b"
)


@dataclass(frozen=True)
class Block:
    """A Makefile's logical line or a Kconfig's entry, with its comment."""

    lines: tuple[str, ...]

    def has(self, text: str) -> bool:
        """Say whether a text is in the block, apart from comments."""
        return any(text in line for line in self.lines if not line.startswith("#"))


def blocks(name: str, text: str) -> list[Block]:
    """Divide a file; the first block is the head."""
    lines = text.splitlines(keepends=True)
    head = 0
    while head < len(lines) and lines[head].startswith("#"):
        head += 1
    found = [Block(tuple(lines[:head]))]
    is_kconfig = name.rsplit("/", 1)[-1].startswith("Kconfig")
    divide = _entries if is_kconfig else _statements
    return found + [Block(tuple(part)) for part in divide(lines[head:])]


def _statements(lines: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    for line in lines:
        part.append(line)
        if line.strip() and not line.startswith("#") and not line.endswith("\\\n"):
            yield part
            part = []
    if part:
        yield part


def _entries(lines: Sequence[str]) -> Iterator[list[str]]:
    part: list[str] = []
    begun = False
    for line in lines:
        if begun and _ENTRY.match(line):
            # Blank lines and comments above this entry are its own.
            cut = len(part)
            while cut > 1 and (not part[cut - 1].strip() or part[cut - 1][0] == "#"):
                cut -= 1
            yield part[:cut]
            part = part[cut:]
        begun = begun or _ENTRY.match(line) is not None
        part.append(line)
    if part:
        yield part


@dataclass
class Growing:
    """A file of linux/tree, and the patch that adds each of its blocks."""

    name: str
    content: bytes
    executable: bool
    blocks: list[Block] = field(default_factory=list)
    owners: list[int | None] = field(default_factory=list)

    def divide(self) -> None:
        """Divide the file into blocks, unless it is done."""
        if not self.blocks:
            self.blocks = blocks(self.name, self.content.decode())
            self.owners = [None] * len(self.blocks)

    def take(self, patch: int, text: str) -> bool:
        """Let a patch add the blocks with a text; false if there are none left."""
        self.divide()
        chosen = [
            at
            for at, block in enumerate(self.blocks)
            if at and self.owners[at] is None and block.has(text)
        ]
        for at in chosen:
            self.owners[at] = patch
        if chosen and self.owners[0] is None:
            self.owners[0] = patch
        return bool(chosen)

    def take_rest(self, patch: int) -> bool:
        """Let a patch add all that is left; false if nothing is."""
        if not self.owners:
            # An undivided file has a single block.
            self.owners = [patch]
            return True
        left = [at for at, owner in enumerate(self.owners) if owner is None]
        for at in left:
            self.owners[at] = patch
        return bool(left)

    @property
    def begun(self) -> bool:
        """Say whether any patch adds a part of the file."""
        return any(owner is not None for owner in self.owners)

    def state(self, patch: int) -> bytes | None:
        """Return the content after a patch."""
        taken = [owner is not None and owner <= patch for owner in self.owners]
        if not any(taken):
            return None
        if not self.blocks:
            return self.content
        return "".join(
            "".join(block.lines)
            for block, here in zip(self.blocks, taken, strict=True)
            if here
        ).encode()
