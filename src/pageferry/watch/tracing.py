# SPDX-License-Identifier: GPL-2.0-only
"""An instance of the kernel's trace, which leaves the traces of others alone."""

from __future__ import annotations

import contextlib
import os
import re
from pathlib import Path

from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files
from pageferry.watch.events import MIGRATION, SCHEME

# tracefs, and its old place.
_PLACES = ("/sys/kernel/tracing", "/sys/kernel/debug/tracing")
_EVENTS = (f"migrate/{MIGRATION}", f"damon/{SCHEME}")
# For each CPU: about 3,000 lines.
_BUFFER_KB = "256"
# A new instance has the options of the system's trace, and these change its lines.
_OPTIONS = {
    "context-info": "1",
    **dict.fromkeys(("latency-format", "raw", "hex", "bin", "fields"), "0"),
}
_CHUNK_BYTES = 1 << 16
_PASS_BYTES = 1 << 20


def obstacle(files: Files) -> str | None:
    """Return the reason why the kernel cannot be traced here; None if it can."""
    for place in _PLACES:
        if files.exists(f"{place}/events/{_EVENTS[0]}"):
            if os.access(files.path(f"{place}/instances"), os.W_OK):
                return None
            return "only root may trace the kernel"
    if any(files.exists(place) for place in _PLACES) and os.geteuid() != 0:
        return "only root may trace the kernel"
    if not any(files.exists(f"{place}/events") for place in _PLACES):
        return f"no tracefs: mount -t tracefs tracefs {_PLACES[0]}"
    return f"this kernel lacks the event {_EVENTS[0]}"


class Trace:
    """The lines of all migrations, from now on."""

    def __init__(self, files: Files) -> None:
        """Make the instance; the caller has asked obstacle() first."""
        self._files = files
        self._rest = b""
        self._pipe = -1
        place = next(p for p in _PLACES if files.exists(f"{p}/events/{_EVENTS[0]}"))
        self._remove_old(f"{place}/instances")
        self._top = f"{place}/instances/pageferry-{os.getpid()}"
        try:
            files.path(self._top).mkdir(exist_ok=True)
            files.write(f"{self._top}/buffer_size_kb", _BUFFER_KB)
            for option, value in _OPTIONS.items():
                if files.exists(f"{self._top}/options/{option}"):
                    files.write(f"{self._top}/options/{option}", value)
            for event in _EVENTS:
                if files.exists(f"{self._top}/events/{event}"):
                    files.write(f"{self._top}/events/{event}/enable", "1")
            flags = os.O_RDONLY | os.O_NONBLOCK
            self._pipe = os.open(files.path(f"{self._top}/trace_pipe"), flags)
        except BaseException:
            self.close()
            raise

    def _remove_old(self, instances: str) -> None:
        """Remove the instance of a command that was killed."""
        for name in self._files.names(instances):
            found = re.fullmatch(r"pageferry-(\d+)", name)
            if found and not Path(f"/proc/{found[1]}").exists():
                with contextlib.suppress(OSError):
                    self._files.path(f"{instances}/{name}").rmdir()

    def lines(self) -> list[str]:
        """Read about 1 MiB of the lines since the last call.

        The kernel may write as fast as this reads, so the end may never come. It counts
        the lines that it loses.
        """
        chunks = [self._rest]
        size = 0
        while size < _PASS_BYTES:
            try:
                chunk = os.read(self._pipe, _CHUNK_BYTES)
            except BlockingIOError:
                break
            if not chunk:
                break
            chunks.append(chunk)
            size += len(chunk)
        *whole, self._rest = b"".join(chunks).split(b"\n")
        return [line.decode(errors="replace") for line in whole]

    def close(self) -> None:
        """Remove the instance, and with it the cost of its events."""
        if self._pipe >= 0:
            os.close(self._pipe)
            self._pipe = -1
        with contextlib.suppress(OSError, PageferryError):
            self._files.path(self._top).rmdir()
