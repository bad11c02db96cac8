# SPDX-License-Identifier: GPL-2.0-only
"""Take back changes of this machine, the last one first."""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

from pageferry import output, proc
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files

# The name of a setting, and a value of it.
Setting = tuple[str, str]


class Undo:
    """A block that takes back its changes at the end, unless it calls keep()."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._steps: list[tuple[str, Callable[[], object]]] = []

    def call(self, what: str, action: Callable[[], object]) -> None:
        """Remember an action; `what` names it in a warning if it fails."""
        self._steps.append((what, action))

    def set(self, name: str, value: str) -> None:
        """Write a setting, and remember its present value."""
        old = self.files.read(name).strip()
        if old == value:
            return
        # The write may be interrupted after it has taken effect.
        self.call(name, lambda: self.files.write(name, old))
        self.files.write(name, value)

    def remember(self, name: str) -> None:
        """Remember a setting that another program may leave changed."""
        old = self.files.read_or(name, "").strip()

        def put_back() -> None:
            if self.files.read(name).strip() != old:
                self.files.write(name, old)

        if old:
            self.call(name, put_back)

    def keep(self) -> None:
        """Leave the changes as they are."""
        self._steps.clear()

    def back(self) -> None:
        """Take back all changes. A step that fails does not stop the others."""
        # A second Ctrl-C must not leave half of the settings.
        with proc.signals_held():
            while self._steps:
                what, action = self._steps.pop()
                try:
                    action()
                except PageferryError as error:
                    with contextlib.suppress(OSError):
                        output.warn(f"could not take back {what}: {error.line()}")

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.back()


@contextlib.contextmanager
def guarded(
    files: Files,
    before: Sequence[Setting],
    lock: int | None,
    group: str | None = None,
) -> Iterator[int]:
    """Let another process take the settings back if this one is killed.

    It first waits for programs that have the descriptor of the block. They put back what
    they found, which may be a setting of this command.

    lock: keeps other commands away until the settings are back.
    group: a cgroup whose processes it ends then.
    """
    changed = {
        "settings": [(str(files.path(name)), value) for name, value in before],
        "cgroup": None if group is None else str(files.path(group)),
    }
    process = subprocess.Popen(
        [sys.executable, "-I", Path(__file__).parent / "guard.py", json.dumps(changed)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        pass_fds=() if lock is None else (lock,),
        # Ctrl-C does not reach it.
        process_group=0,
    )
    assert process.stdin is not None and process.stdout is not None
    with process:
        # A signal before this line would end it.
        process.stdout.readline()
        try:
            yield process.stdin.fileno()
        finally:
            with contextlib.suppress(OSError):
                process.stdin.write(b"done")
