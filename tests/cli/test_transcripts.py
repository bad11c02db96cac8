# SPDX-License-Identifier: GPL-2.0-only
"""Transcripts of the pages whose output is the same on each machine."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from helpers import transcripts
from helpers.transcripts import ROOT, Transcript


@pytest.mark.parametrize(
    "transcript", transcripts.of_layer("cli"), ids=lambda t: t.name
)
def test_a_page_shows_what_the_tool_prints(
    transcript: Transcript, tmp_path: Path
) -> None:
    # Commands may name files of the checkout, and write others.
    for name in ("docs", "packaging"):
        (tmp_path / name).symlink_to(ROOT / name)
    script = transcripts.SETUP + transcript.script()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    wrong = transcript.differences(done.stdout)
    assert not wrong, wrong


def test_each_transcript_is_tested() -> None:
    for page in transcripts.PAGES:
        fences = page.read_text().count(f"\n{transcripts.FENCE}")
        assert fences == len(transcripts.of_page(page)), page


@pytest.mark.parametrize(
    ("promised", "printed", "agree"),
    [
        ("1,234  pages of 5 MiB", "7  pages of 12 GiB", True),
        ("the first at 7fe728580000", "the first at 55d042403000", True),
        ("a\n...\nd 1", "a\nb\nc\nd 2", True),
        ("a\n...\nd 1", "a\nb\nc\ne 2", False),
        ("anonymous 5", "file 5", False),
        ("a", "a\nb", False),
        ("bytes 0.0", "bytes 5.8867712e+07", True),
        ("a", "move: 66%, 20 s, about 10 s left\na", True),
    ],
)
def test_what_a_machine_may_print(promised: str, printed: str, agree: bool) -> None:
    steps = (("true", promised),)
    transcript = Transcript("x", "vm", ("tiered",), "", steps)
    wrong = transcript.differences(f"\n{transcripts.STEP}\n{printed}\n")
    assert (wrong == "") == agree
