# SPDX-License-Identifier: GPL-2.0-only
"""Work that takes minutes, begun in a process of its own before it is needed."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# For a machine to be taken down, or a compiler.
_STOP_S = 30


class Ahead:
    """`python3 -m MODULE FOLDER [WORD...]`, which leaves what it finds there."""

    def __init__(self, module: str, *words: str) -> None:
        self.folder = tempfile.TemporaryDirectory(prefix="pageferry-ahead-")
        self.here = Path(self.folder.name)
        with (self.here / "log").open("wb") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", module, str(self.here), *words],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                # A Ctrl-C is for us, and stop() then sees to it.
                start_new_session=True,
            )

    def wait(self) -> Path:
        """Wait until it is done; returns the folder."""
        code = self.process.wait()
        assert code == 0, f"exit code {code}\n{(self.here / 'log').read_text()}"
        return self.here

    def stop(self) -> None:
        """End it, if it still runs, as Ctrl-C would."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGINT)
            try:
                self.process.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(self.process.pid, signal.SIGKILL)
                self.process.wait()
        self.folder.cleanup()
