# SPDX-License-Identifier: GPL-2.0-only
"""Work that takes minutes, begun in a process of its own before it is needed."""

from __future__ import annotations

import contextlib
import os
import pickle
import signal
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
# For a machine to be taken down, or a compiler.
_STOP_S = 30
_POLL_S = 0.2
# What is done ahead gets the time that the tests leave. A guest whose CPUs are
# both running is several times faster than one that shares them with another as
# its equal: whenever one of its CPUs waits for the other, the host is likely to
# have taken that one away for some milliseconds.
_NICENESS = 15


def _give_way() -> None:
    """Let others go first; to be called in a session of its own."""
    os.nice(_NICENESS)
    # Between sessions it is this that counts, where the kernel has it.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))


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
                preexec_fn=_give_way,
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


def _claim(folder: Path, job: str) -> bool:
    """Say whether nobody else does it, and nobody will."""
    try:
        (folder / f"{job}.claim").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def do(folder: Path, job: str, call: Callable[[], object]) -> None:
    """Do it, unless somebody else does, and leave what came of it there."""
    if not _claim(folder, job):
        return
    done: tuple[bool, object]
    try:
        done = (True, call())
    except Exception:
        # It is one job that failed; the others go on.
        done = (False, traceback.format_exc())
    scratch = folder / f"{job}.new"
    scratch.write_bytes(pickle.dumps(done))
    scratch.replace(folder / f"{job}.done")


class Queue:
    """Jobs that such a process does one after the other.

    Whoever would have to wait for one does others meanwhile, from the end: there
    are two CPUs, and a job keeps hardly more than one of them busy.
    """

    def __init__(self, module: str, jobs: Sequence[str]) -> None:
        self.jobs = tuple(jobs)
        self.process = Ahead(module, *jobs)

    def result(self, name: str, calls: Mapping[str, Callable[[], object]]) -> object:
        """Give what came of one, which must be among them."""
        folder = self.process.here
        for job in (name, *reversed(self.jobs)):
            if not (folder / f"{name}.done").exists():
                do(folder, job, calls[job])
        while not (folder / f"{name}.done").exists():
            if self.process.process.poll() is not None:
                # Its last job may have been this one.
                self.process.wait()
                break
            time.sleep(_POLL_S)
        well, found = pickle.loads((folder / f"{name}.done").read_bytes())
        assert well, found
        return found

    def stop(self) -> None:
        """End what is being done."""
        self.process.stop()
