# SPDX-License-Identifier: GPL-2.0-only
"""Sessions, each stored in a file for the next command.

The files lie in /run, because a session ends with the machine at the latest.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
from pathlib import Path
from typing import Literal

import msgspec

from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.interleave.user_space import Quota
from pageferry.interleave.weights import Weights
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files

DIRECTORY = "/run/pageferry/interleave"


class Session(msgspec.Struct, kw_only=True):
    """One process, with others if asked, whose memory the tool spreads."""

    pid: int
    start_time: int
    name: str
    # DAMON or user space moves the pages.
    by: Literal["kernel", "user"]
    weights: list[tuple[int, int]]
    hot: bool = False
    include_children: bool = False
    # More processes of the session.
    members: list[int] = []
    # Their start times, because the kernel may reuse a PID.
    member_starts: list[int] = []
    # The service that takes care of the session, if any.
    owner: str = ""
    owner_pid: int | None = None
    # Whether DAMON has stopped, because memory is in its place.
    resting: bool = False
    quota_bytes: int | None = None
    quota_ms: int | None = None
    # For DAMON: the number of the kdamond, and the PID of its thread.
    slot: int | None = None
    thread: int | None = None
    # For user space: the process that repeats passes, if any.
    worker: int | None = None
    worker_start_time: int | None = None
    # Grows with each `set`, so that a worker notices new weights.
    rounds: int = 0
    moved_pages: int = 0
    no_room: dict[str, int] = {}
    unmovable: dict[str, int] = {}

    @property
    def wanted(self) -> Weights:
        """Return the weights."""
        return Weights(tuple(self.weights))

    @property
    def quota(self) -> Quota | None:
        """Return the quota."""
        if self.quota_bytes is None or self.quota_ms is None:
            return None
        return Quota(self.quota_bytes, self.quota_ms / 1000)


class Store:
    """All sessions of this machine."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.directory = files.path(DIRECTORY)

    def find(self, pid: int) -> Session | None:
        """Read the session of a process; None if there is none.

        A session of an earlier process with the same PID does not count.
        """
        session = self.read(pid)
        if session is None:
            return None
        process = processes.find(self.files, pid)
        if process is not None and process.start_time != session.start_time:
            return None
        return session

    def read(self, pid: int) -> Session | None:
        """Read a session, even if another process has its PID now."""
        return self._read(self.directory / f"{pid}.json")

    def require(self, pid: int) -> Session:
        """Read the session of a process, or raise an error."""
        session = self.find(pid)
        if session is None:
            others = ", ".join(str(known.pid) for known in self.all())
            raise PageferryError(
                "nothing was started for this process",
                value=str(pid),
                reason=f"there is: {others}" if others else None,
                hint=f"pageferry interleave start --pid {pid} --weights 0=1,1=1",
                code=ExitCode.USAGE,
            )
        return session

    def all(self) -> list[Session]:
        """Read all sessions."""
        paths = sorted(self.directory.glob("*.json"))
        return [known for path in paths if (known := self._read(path)) is not None]

    def slots(self) -> dict[int, int | None]:
        """Return the threads of our kdamonds, by slot.

        A thread is None if the command that started it was killed.
        """
        return {
            known.slot: known.thread for known in self.all() if known.slot is not None
        }

    def take_slot(self, slot: int) -> None:
        """Take a free slot from its last session, whose kdamond another program stopped.

        Otherwise its stop would stop the kdamond of the next session.
        """
        for known in self.all():
            if known.slot == slot:
                known.slot = known.thread = None
                self.save(known)

    def save(self, session: Session) -> None:
        """Write a session atomically."""
        if self.files.dry_run:
            return
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self.directory, prefix=".new-")
            with os.fdopen(handle, "wb") as stream:
                stream.write(msgspec.json.encode(session) + b"\n")
            Path(name).chmod(0o644)
            Path(name).replace(self.directory / f"{session.pid}.json")
        except OSError as error:
            raise from_os_error(
                error, "cannot store the session", ExitCode.FAILED
            ) from error

    def forget(self, pid: int) -> None:
        """Remove a session."""
        if not self.files.dry_run:
            (self.directory / f"{pid}.json").unlink(missing_ok=True)

    def _read(self, path: Path) -> Session | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=Session)
        return None
