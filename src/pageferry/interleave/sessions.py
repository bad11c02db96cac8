# SPDX-License-Identifier: GPL-2.0-only
"""What was started, kept in a file for each process, for the next command.

They lie in /run: what they speak of does not outlive the machine either.
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
    """One process, or one family of them, and where its memory is to be."""

    pid: int
    start_time: int
    name: str
    # Who moves the pages.
    by: Literal["kernel", "user"]
    weights: list[tuple[int, int]]
    hot: bool = False
    include_children: bool = False
    # Others that were named beside it.
    members: list[int] = []
    quota_bytes: int | None = None
    quota_ms: int | None = None
    # Of the kernel: which kdamond, and the number of its thread.
    slot: int | None = None
    thread: int | None = None
    # Of user space: the process that makes passes, if one keeps on.
    worker: int | None = None
    worker_start_time: int | None = None
    # Grow with each `set`: the weights are those of this round.
    rounds: int = 0
    moved_pages: int = 0
    no_room: dict[str, int] = {}
    unmovable: dict[str, int] = {}

    @property
    def wanted(self) -> Weights:
        """Give the weights."""
        return Weights(tuple(self.weights))

    @property
    def quota(self) -> Quota | None:
        """Give the bound on what moves."""
        if self.quota_bytes is None or self.quota_ms is None:
            return None
        return Quota(self.quota_bytes, self.quota_ms / 1000)


class Store:
    """All sessions of this machine."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self.directory = files.path(DIRECTORY)

    def find(self, pid: int) -> Session | None:
        """Read one; None when nothing was started, or of a process long gone."""
        session = self._read(self.directory / f"{pid}.json")
        if session is None:
            return None
        process = processes.find(self.files, pid)
        if process is not None and process.start_time != session.start_time:
            return None
        return session

    def require(self, pid: int) -> Session:
        """Read one that somebody named."""
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
        """Read all of them."""
        paths = sorted(self.directory.glob("*.json"))
        return [known for path in paths if (known := self._read(path)) is not None]

    def slots(self) -> dict[int, int]:
        """Give the threads of our kdamonds, by slot."""
        return {
            known.slot: known.thread
            for known in self.all()
            if known.slot is not None and known.thread is not None
        }

    def save(self, session: Session) -> None:
        """Write one, as a whole or not at all."""
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
                error, "cannot note what was started", ExitCode.FAILED
            ) from error

    def forget(self, pid: int) -> None:
        """Remove one."""
        if not self.files.dry_run:
            (self.directory / f"{pid}.json").unlink(missing_ok=True)

    def _read(self, path: Path) -> Session | None:
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            return msgspec.json.decode(path.read_bytes(), type=Session)
        return None
