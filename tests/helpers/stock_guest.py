# SPDX-License-Identifier: GPL-2.0-only
"""Tries the commands of operators in the guest; prints one JSON document."""

from __future__ import annotations

import contextlib
import io
import os
import subprocess
import sys

from helpers.interleave_hold import tool
from pageferry import output
from pageferry.cli import main as pageferry
from pageferry.sysfs.files import Files
from pageferry.watch import view
from pageferry.watch.interval import Watcher

MIB = 32
_HOLD = f"x = bytearray({MIB} << 20); print(flush=True); input()"


def printed(*words: str) -> str:
    """Return the output of a command for people."""
    text = io.StringIO()
    with contextlib.redirect_stdout(text):
        assert pageferry(words) == 0
    return text.getvalue()


def main() -> int:
    """Move a process beside `top`, then ask the other commands."""
    found: dict[str, object] = {"release": os.uname().release}
    found["doctor"] = tool("doctor")
    found["status"] = tool("status")
    hold = [sys.executable, "-c", _HOLD]
    pipe = subprocess.PIPE
    with subprocess.Popen(hold, stdin=pipe, stdout=pipe) as process:
        assert process.stdout is not None
        process.stdout.readline()
        way = ("move", "--pid", str(process.pid), "--from", "0", "--to", "1")
        found["foreseen"] = tool(*way, "--dry-run")
        watcher = Watcher(Files())
        found["move"] = tool(*way)
        found["top"] = view.document(watcher.interval())
        watcher.close()
        process.kill()
    found["offline"] = tool("move", "--offline-check", "1")
    found["once"] = printed("top", "--once", "--every", "1s")
    found["metrics"] = printed("exporter", "--once")
    output.answer_json(found)
    return 0


if __name__ == "__main__":
    sys.exit(main())
