# SPDX-License-Identifier: GPL-2.0-only
"""Work that takes minutes, started in a process of its own before it is needed."""

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
# Time for a guest or a compiler to stop.
_STOP_S = 30
_POLL_S = 0.2
# Background jobs get the time that tests leave. Guests of equal priority disturb each
# other: when one guest's CPU waits for the other, the host may have taken that one away
# for milliseconds. A guest with priority is several times faster.
_NICENESS = 15


def _give_way() -> None:
    """Lower the priority; call this in a session of its own."""
    os.nice(_NICENESS)
    # Between sessions, autogroup's priority counts, if the kernel has it.
    with contextlib.suppress(OSError):
        Path("/proc/self/autogroup").write_text(str(_NICENESS))


class Ahead:
    """A job: `python3 -m MODULE FOLDER [WORD...]`, with its results in the folder."""

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
                # Only this process handles Ctrl-C. stop() then ends the job.
                start_new_session=True,
                preexec_fn=_give_way,
            )

    def wait(self) -> Path:
        """Wait until the job is done; returns the folder."""
        code = self.process.wait()
        assert code == 0, f"exit code {code}\n{(self.here / 'log').read_text()}"
        return self.here

    def stop(self) -> None:
        """End the job with SIGINT, if it still runs."""
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
    """Claim the job; returns false if another process has it."""
    try:
        (folder / f"{job}.claim").touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def do(folder: Path, job: str, call: Callable[[], object]) -> None:
    """Do the job, unless another process does, and store the result."""
    if not _claim(folder, job):
        return
    done: tuple[bool, object]
    try:
        done = (True, call())
    except Exception:
        # Only this job failed; continue with the others.
        done = (False, traceback.format_exc())
    scratch = folder / f"{job}.new"
    scratch.write_bytes(pickle.dumps(done))
    scratch.replace(folder / f"{job}.done")


class Queue:
    """Jobs that such a process does one after the other.

    A test that would have to wait for a job does another one, from the end of the list.
    There are two CPUs, and most jobs hardly use more than one.
    """

    def __init__(self, module: str, jobs: Sequence[str]) -> None:
        self.jobs = tuple(jobs)
        self.process = Ahead(module, *jobs)

    def result(self, name: str, calls: Mapping[str, Callable[[], object]]) -> object:
        """Return the result of a job of this queue."""
        folder = self.process.here
        for job in (name, *reversed(self.jobs)):
            if not (folder / f"{name}.done").exists():
                do(folder, job, calls[job])
        while not (folder / f"{name}.done").exists():
            if self.process.process.poll() is not None:
                # The process may have ended with this job.
                self.process.wait()
                break
            time.sleep(_POLL_S)
        well, found = pickle.loads((folder / f"{name}.done").read_bytes())
        assert well, found
        return found

    def stop(self) -> None:
        """Stop the present job."""
        self.process.stop()
