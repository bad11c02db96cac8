# SPDX-License-Identifier: GPL-2.0-only
"""Lines of the kernel's trace, and totals by reason and by caller."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

# TASK-PID (PROCESS) [CPU] FLAGS TIME: EVENT: FIELDS. A name may contain spaces and
# hyphens. The options record-tgid and irq-info decide about the process and the flags.
_LINE = re.compile(
    r"\s*(.+)-(\d+)\s+(?:\(\s*[\d-]+\)\s+)?\[\d+\]\s+(?:\S+\s+)?[\d.]+:\s+(\w+):\s+(.*)"
)
_LOST = re.compile(r"CPU:\d+ \[LOST (?:(\d+) )?EVENTS\]")
_FIELD = re.compile(r"(\w+)=(\S+)")

MIGRATION = "mm_migrate_pages"
SCHEME = "damos_before_apply"
DAMON = "damon"

# Names the direction of a DAMON scheme: kdamond's PID, and the scheme's number.
Direction = Callable[[int, int], str | None]


@dataclass
class Moves:
    """Calls that migrated pages; a page has the base size."""

    calls: int = 0
    moved_pages: int = 0
    failed_pages: int = 0

    def add(self, moved: int, failed: int) -> None:
        """Add one call."""
        self.calls += 1
        self.moved_pages += moved
        self.failed_pages += failed

    def merge(self, more: Moves) -> None:
        """Add other calls."""
        self.calls += more.calls
        self.moved_pages += more.moved_pages
        self.failed_pages += more.failed_pages


@dataclass
class Totals:
    """Totals of lines, by reason, and by task and reason."""

    reasons: dict[str, Moves] = field(default_factory=dict)
    callers: dict[tuple[int, str, str], Moves] = field(default_factory=dict)
    lost_events: int = 0
    _schemes: dict[int, int] = field(default_factory=dict)

    def add(self, lines: Iterable[str], direction: Direction) -> None:
        """Add lines of the trace, in their order."""
        for line in lines:
            lost = _LOST.match(line)
            if lost is not None:
                # The kernel does not always know the number; it is at least 1.
                self.lost_events += int(lost[1] or 1)
            found = _LINE.match(line)
            if found is not None:
                pid = int(found[2])
                self._event(found[1], pid, found[3], found[4], direction)

    def take(self) -> Totals:
        """Return the totals, and begin again.

        A machine starts tasks for ever, so the callers must not stay.
        """
        found = Totals(self.reasons, self.callers, self.lost_events)
        self.reasons, self.callers, self.lost_events = {}, {}, 0
        return found

    def _event(
        self, task: str, pid: int, event: str, text: str, direction: Direction
    ) -> None:
        fields = dict(_FIELD.findall(text))
        if event == SCHEME:
            # The scheme's migrations follow, in the same task.
            self._schemes[pid] = int(fields.get("scheme_idx", 0))
        if event != MIGRATION:
            return
        reason = fields.get("reason", "unknown")
        if reason == DAMON:
            towards = direction(pid, self._schemes.get(pid, 0))
            reason = f"{DAMON} {towards}" if towards else DAMON
        moved = int(fields.get("nr_succeeded", 0))
        failed = int(fields.get("nr_failed", 0))
        self.reasons.setdefault(reason, Moves()).add(moved, failed)
        self.callers.setdefault((pid, task, reason), Moves()).add(moved, failed)
