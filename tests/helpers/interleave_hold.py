# SPDX-License-Identifier: GPL-2.0-only
"""A process to interleave in the guest, and the tool that does so.

The tool runs inside this process, as Python takes a second to start there.
"""

from __future__ import annotations

import contextlib
import io
import json
import subprocess
import sys
import time
from typing import Any

from pageferry.cli import main as pageferry

Document = dict[str, Any]


class Hold:
    """bench/hold: a process with memory on node 0."""

    def __init__(self, *options: str) -> None:
        self.process = subprocess.Popen(
            [sys.argv[1], *options],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.ready = self._line()
        self.pid = str(self.process.pid)

    def _line(self) -> Document:
        assert self.process.stdout is not None
        document = json.loads(self.process.stdout.readline())
        assert isinstance(document, dict)
        return document

    def ask(self, word: str) -> Document:
        """Let the program use its memory."""
        assert self.process.stdin is not None
        self.process.stdin.write(f"{word}\n")
        self.process.stdin.flush()
        return self._line()

    def end(self) -> None:
        """End the program."""
        self.process.kill()
        self.process.wait()


def tool(*words: str) -> Document:
    """Call the tool with --json; adds its exit code and output."""
    out, err = io.StringIO(), io.StringIO()
    begin = time.monotonic()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = pageferry([*words, "--json"])
    document: Document = json.loads(out.getvalue())
    seconds = round(time.monotonic() - begin, 2)
    # Shows the step at which a hanging case stopped.
    said = err.getvalue()
    sys.stderr.write(f"{seconds} s, {code}: {' '.join(words)}\n{said}")
    return {**document, "code": code, "said": said, "seconds": seconds}


def interleave(verb: str, hold: Hold, *words: str) -> Document:
    """Call one verb for one process."""
    return tool("interleave", verb, "--pid", hold.pid, *words)


def warm(*options: str) -> Hold:
    """Start a program once, to fill the page cache.

    The pages of the program itself are on the node where an earlier run left them.
    """
    hold = Hold(*options)
    hold.ask("nodes")
    hold.ask("verify")
    return hold
