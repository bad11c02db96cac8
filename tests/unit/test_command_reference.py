# SPDX-License-Identifier: GPL-2.0-only
"""The page about commands has the same text as --help."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

import pytest

from pageferry import cli, proc

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "reference" / "commands.md"


def test_the_page_is_current() -> None:
    made = proc.capture(
        [sys.executable, ROOT / "scripts" / "command_reference.py"],
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert made.returncode == 0, made.stderr
    assert PAGE.read_text() == made.stdout, (
        "make it again: PYTHONPATH=src $(python3 scripts/bootstrap.py python)"
        " scripts/command_reference.py > docs/reference/commands.md"
    )


def _helps(parser: argparse.ArgumentParser) -> dict[str, str]:
    """Return the output of --help of each verb."""
    (verbs,) = (
        action
        for action in parser._actions
        if isinstance(action, argparse._SubParsersAction)
    )
    found: dict[str, str] = {}
    for child in verbs.choices.values():
        found[child.prog] = child.format_help()
        if child._subparsers is not None:
            found |= _helps(child)
    return found


def test_a_verb_alone_is_what_it_is_among_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    everything = _helps(cli.make_parser())
    alone: dict[str, str] = {}
    for word in {cli.first_word(group, name) for group, name in cli.COMMANDS}:
        of_word = _helps(cli.make_parser(word))
        assert all(words.split()[1] == word for words in of_word)
        alone |= of_word
    assert alone == everything
    assert len(everything) >= len(cli.COMMANDS)
