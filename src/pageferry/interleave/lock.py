# SPDX-License-Identifier: GPL-2.0-only
"""Locks between commands. The kernel releases a lock when its process ends."""

from __future__ import annotations

import contextlib
import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import AbstractContextManager

from pageferry import output
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.sysfs.files import Files

_DIRECTORY = "/run/pageferry"
_RETRY_S = 0.05
# A command holds the lock while it waits for DAMON: a minute if the kernel refuses, and
# a whole turn if the kernel waits.
_DAMON_S = 90.0
_SAY_AFTER_S = 2.0


def hold_damon(files: Files) -> AbstractContextManager[int | None]:
    """Hold the lock of the commands that change DAMON's files."""
    hint = "repeat the command; pageferry interleave status shows the sessions"
    return hold(files, "interleave", _DAMON_S, hint)


def hold_settings(files: Files) -> AbstractContextManager[int | None]:
    """Hold the lock of the commands that set the whole machine for a while.

    A second one would take the settings of the first for those of the administrator.
    Other users than root cannot write these settings.
    """
    if os.geteuid() != 0:
        return contextlib.nullcontext()
    hint = "wait until that process has ended, and its settings are back"
    return hold(files, "settings", 0.0, hint)


@contextlib.contextmanager
def hold(files: Files, name: str, wait_s: float, hint: str) -> Iterator[int | None]:
    """Hold a lock; an error names the process that holds it for longer than `wait_s`.

    A process that gets the handle holds the lock, too. A dry run has none.
    """
    if files.dry_run:
        yield None
        return
    path = files.path(f"{_DIRECTORY}/{name}.lock")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A user who can open the file could hold the lock for ever.
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise from_os_error(error, "cannot lock", ExitCode.FAILED) from error
    try:
        begin_s, said = time.monotonic(), False
        while True:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError as error:
                waited_s = time.monotonic() - begin_s
                holder = os.pread(handle, 20, 0).decode(errors="replace").strip()
                if waited_s >= wait_s:
                    raise PageferryError(
                        "another pageferry command is at work",
                        value=path,
                        reason=f"process {holder} holds the lock",
                        hint=hint,
                    ) from error
                if waited_s >= _SAY_AFTER_S and not said:
                    said = True
                    output.talk(f"waiting for process {holder}, which holds {path}")
                time.sleep(_RETRY_S)
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        yield handle
    finally:
        os.close(handle)
