# SPDX-License-Identifier: GPL-2.0-only
"""Whether a scheme of DAMON promotes or demotes."""

from __future__ import annotations

from pageferry.damon.admin import TOP, Admin
from pageferry.sysfs.files import Files

_TOWARDS = {"migrate_hot": "promotion", "migrate_cold": "demotion"}
# Another program's request makes the kernel answer EBUSY, so one try is too few.
_TRIES = 3


class Schemes:
    """The schemes of kdamonds, by the PID of their thread.

    The kernel takes a lock of DAMON to show a PID, and refuses another program's
    request meanwhile. So each PID is looked up once.
    """

    def __init__(self, files: Files) -> None:
        self._files = files
        self._slots: dict[int, int] = {}
        self._tries: dict[int, int] = {}
        self._actions: dict[tuple[int, int], str | None] = {}

    def refresh(self) -> None:
        """Read the actions again, which a program may have changed; needs no lock."""
        self._actions.clear()

    def direction(self, pid: int, number: int) -> str | None:
        """Return the direction of a kdamond's scheme; None if it is unknown."""
        key = (pid, number)
        if key not in self._actions:
            self._actions[key] = self._read(pid, number)
        return self._actions[key]

    def _read(self, pid: int, number: int) -> str | None:
        slot = self._slot(pid)
        if slot is None:
            return None
        action = f"{TOP}/{slot}/contexts/0/schemes/{number}/action"
        return _TOWARDS.get(self._files.read_or(action, "").strip())

    def _slot(self, pid: int) -> int | None:
        tries = self._tries.get(pid, 0)
        if pid not in self._slots and tries < _TRIES:
            here = Admin(self._files, {}).kdamonds(wait=False)
            found = {kdamond.pid: kdamond.slot for kdamond in here}
            self._slots.update({k: v for k, v in found.items() if k > 0})
            self._tries[pid] = tries + 1
        return self._slots.get(pid)
