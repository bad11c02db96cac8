# SPDX-License-Identifier: GPL-2.0-only
"""Transcripts in the pages, and the comparison with the output of their commands.

A page marks each transcript with a comment. Further lines of the comment are shell
commands, which run before the transcript:

    <!-- tested: vm tiered
    hold anonymous huge
    -->
    ```console
    # pageferry move --pid 4711 --from 0 --to 1
    4473 (python3): 12 MiB moved from node 0 to 1
    ...
    ```

The first word is the layer. After `vm` comes the topology, or `host` for commands that
boot a machine themselves, and `stock` for an unchanged kernel. Lines that begin with the
first word of the transcript are commands; all run in one shell, and show stdout and
stderr. 4711 stands for the process that the comment started last.

A line `...` stands for any lines. Lines of progress, which a slow host prints, count for
nothing. In the layer cli, all other lines have to be equal. In
the layer vm, any two numbers are equal, any two addresses, units and runs of blanks.
"""

from __future__ import annotations

import difflib
import re
import sys
from dataclasses import dataclass
from pathlib import Path

from helpers.sources import found

ROOT = Path(__file__).resolve().parents[2]
PAGES = found(ROOT, "*.md", "docs/**/*.md")
FENCE = "```console\n"
_MARKED = re.compile(
    rf"^<!-- tested: (cli|vm)((?: \w[\w-]*)*) ?\n?((?:(?!-->).)*)-->\n+{FENCE}(.*?)^```$",
    re.DOTALL | re.MULTILINE,
)
STEP = "=== step"
_PID = "4711"
# Wrappers of python3 on the host's PATH, such as pyenv's, are slow in a machine. Without a
# terminal, Python would print stdout after stderr.
SETUP = f"""\
export PATH={ROOT}:{Path(sys.executable).parent}:$PATH
export PYTHONPATH={ROOT / "tests"} PYTHONUNBUFFERED=1
export LC_ALL=C.UTF-8 COLUMNS=88
hold() {{ # starts a process with pages of these kinds
	rm -f /tmp/held
	sleep 600 | python3 -m helpers.move_hold /dev/null "$@" >/tmp/held &
	until [ -s /tmp/held ]; do sleep 1; done
}}
"""
_PROGRESS = re.compile(r"^\w+: \d+%, .*\n?", re.MULTILINE)
# The order matters: an address contains numbers, and looks like one with an exponent.
_ALIKE = (
    (r"\d\.\d+e\+\d+", "NUMBER"),
    (r"\b[0-9a-f]{9,}\b", "ADDRESS"),
    (r"\d+(?:[.,]\d+)*", "NUMBER"),
    (r"NUMBER (?:B|[KMGT]iB)\b", "SIZE"),
    (r" +", " "),
)


@dataclass(frozen=True)
class Transcript:
    """Commands of a page, with the output that the page promises."""

    name: str
    layer: str
    machine: tuple[str, ...]
    before: str
    steps: tuple[tuple[str, str], ...]

    def script(self) -> str:
        """Return commands for bash that print each step behind a mark."""
        lines = [self.before, "PID=$!"]
        for command, _ in self.steps:
            lines += [f"echo; echo '{STEP}'", command.replace(_PID, "$PID")]
        ended = "kill $(jobs -p) 2>/dev/null"
        return "(\n" + "\n".join([*lines, ended]) + "\n) </dev/null 2>&1\n"

    def differences(self, printed: str) -> str:
        """Compare all steps with the output of the script; empty if they agree."""
        now = [text.rstrip() for text in printed.split(f"\n{STEP}\n")[1:]]
        if len(now) != len(self.steps):
            return f"{len(now)} of {len(self.steps)} steps began:\n{printed}"
        wrong = [
            f"$ {command}\n{_diff(promised, there)}\n\nthe output:\n{there}"
            for (command, promised), there in zip(self.steps, now, strict=True)
            if not self._agrees(promised, there)
        ]
        return "\n".join(wrong)

    def _agrees(self, promised: str, printed: str) -> bool:
        printed = _PROGRESS.sub("", printed)
        if self.layer == "vm":
            promised, printed = alike(promised), alike(printed)
        lines = [
            r"(?:.*\n)*?" if line == "..." else f"{re.escape(line)} *\n"
            for line in promised.splitlines()
        ]
        return re.fullmatch("".join(lines), printed + "\n" * bool(printed)) is not None


def alike(text: str) -> str:
    """Replace what differs between two runs."""
    for pattern, name in _ALIKE:
        text = re.sub(pattern, name, text)
    return text


def _diff(promised: str, printed: str) -> str:
    old, new = (alike(text).splitlines() for text in (promised, printed))
    return "\n".join(difflib.unified_diff(old, new, "page", "output", lineterm="", n=1))


def _steps(text: str) -> tuple[tuple[str, str], ...]:
    prompt = re.escape(text.split(" ", 1)[0] + " ")
    parts = re.split(rf"^{prompt}(.*(?:\n> .*)*)\n", text, flags=re.MULTILINE)[1:]
    commands = (part.replace("\n> ", "\n") for part in parts[::2])
    return tuple(zip(commands, (t.rstrip() for t in parts[1::2]), strict=True))


def of_page(page: Path) -> list[Transcript]:
    """Find the transcripts of a page."""
    text = page.read_text(encoding="utf-8")
    result = []
    for match in _MARKED.finditer(text):
        layer, words, before, commands = match.groups()
        line = text.count("\n", 0, match.start(4)) + 1
        name = f"{page.relative_to(ROOT)}:{line}"
        machine = tuple(words.split())
        result.append(Transcript(name, layer, machine, before, _steps(commands)))
    return result


def of_layer(layer: str) -> list[Transcript]:
    """Find the transcripts of a layer in all pages."""
    return [t for page in PAGES for t in of_page(page) if t.layer == layer]
