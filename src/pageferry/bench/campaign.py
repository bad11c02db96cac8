# SPDX-License-Identifier: GPL-2.0-only
"""The fault campaign: its options, its output, and the judgement."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pageferry.errors import PageferryError, usage_error

# The order in which the program runs them.
FAULTS = (
    *("none", "fail", "refuse", "reject", "hide-error", "abort", "lose-irq"),
    *("stall", "stall-held", "stall-error"),
    *("late", "late-stopped", "late-error", "dead", "vanish", "reload", "mixed"),
    "lie",
)
# These faults break a rule, to prove that the campaign notices. `all` excludes them.
DAMAGING = ("trusted-lie",)
# These faults switch engines during migration, which patches running code. QEMU before
# 8.1 gets this wrong with a thread for each CPU.
SWITCHING = ("reload", "mixed")

# Messages that the kernel may log, and the reasons. Any other message is a finding.
ANNOUNCED = (
    (r"dcbm: \S+ is taken out of use: ", "a channel that failed is retired"),
    (
        r"dcbm: \S+: complete, but nobody said so; lost interrupt\?",
        "an interrupt was lost",
    ),
    (
        r"dcbm: \S+ cannot be given back: it has transfers that never ended",
        "rule 4: dcbm waits for late transfers",
    ),
    (r"dcbm: no free channel of a driver", "all channels wait for late transfers"),
    (r"dcbm: \S+ goes away", "the device vanished"),
    (r"dcbm_\w+: \d+ callbacks suppressed", "lost interrupts, many"),
    (r"DMA-API: (preallocated|debugging enabled|dma_debug_entry pool)", "boot"),
)
# Messages of Linux itself, with or without our patches.
STOCK_COMPLAINTS = (
    (
        r"page dumped because: VM_WARN_ON_FOLIO\(folio_test_partially_mapped\(folio\)\)",
        "migrate_folio_move() puts a large folio back on the list of those to be "
        "split by what it knew before the folio was mapped again; another thread "
        "may have unmapped a part since (Linux 6.12.117, mm/migrate.c)",
    ),
)
_OURS = re.compile(r"\b(dcbm\w*|dmasim|DMA-API|migrate_offload)\b.*:")


def parse_faults(text: str) -> tuple[str, ...]:
    """Parse a list of faults, in the order of the program."""
    if text == "all":
        return FAULTS
    names = text.split(",")
    for name in names:
        if name not in (*FAULTS, *DAMAGING):
            raise usage_error(
                "unknown fault", name, f"one of {', '.join((*FAULTS, *DAMAGING))}"
            )
    return tuple(name for name in (*FAULTS, *DAMAGING) if name in names)


@dataclass
class Report:
    """The output of the program, in all its boots."""

    phases: list[dict[str, Any]] = field(default_factory=list)
    leaks: list[dict[str, Any]] = field(default_factory=list)
    ended: int = 0
    kernel_log: list[str] = field(default_factory=list)

    @property
    def folios(self) -> int:
        """Count the folios that moved."""
        return sum(int(phase["folios"]) for phase in self.phases)

    def add(self, part: Report) -> None:
        """Add the output of another boot."""
        self.phases += part.phases
        self.leaks += part.leaks
        self.ended += part.ended
        self.kernel_log += part.kernel_log

    def problems(self) -> list[str]:
        """List all failed checks."""
        found = [f"{p['fault']}: {p['problems']}" for p in self.phases if p["problems"]]
        found += [f"leaks: {leak}" for leak in self.leaks if not leak["ok"]]
        return found + [f"kernel log: {line}" for line in self.kernel_log]


def read_line(report: Report, text: str) -> dict[str, Any] | None:
    """Parse one line of the program; only JSON counts."""
    if not text.startswith("{"):
        return None
    try:
        line = json.loads(text)
    except ValueError as error:
        raise PageferryError(
            "the campaign said something that is not JSON", value=text
        ) from error
    if not isinstance(line, dict):
        return None
    if line.get("type") == "phase":
        report.phases.append(line)
    elif line.get("type") == "leaks":
        report.leaks.append(line)
    elif line.get("type") == "end":
        report.ended += 1
    return line


def unannounced(lines: Iterable[str]) -> list[str]:
    """List unexpected messages of our own kernel code."""
    expected = [re.compile(pattern) for pattern, _ in ANNOUNCED]
    found: list[str] = []
    for line in lines:
        text = re.sub(r"^\[\s*\d+\.\d+\](\[[^\]]*\])?\s*", "", line.strip())
        if not _OURS.match(text) or any(p.search(text) for p in expected):
            continue
        if text not in found:
            found.append(text)
    return found


def unexplained(findings: Iterable[str]) -> list[str]:
    """Remove kernel messages that have a known cause outside our code."""
    known = [re.compile(pattern) for pattern, _ in STOCK_COMPLAINTS]
    return [line for line in findings if not any(p.search(line) for p in known)]


_COLUMNS = (
    *("fault", "folios", "engine", "cpu", "held", "released", "kept"),
    *("hits", "timeouts", "resets", "longest_ms", "after_ms"),
)


def table(phases: Sequence[dict[str, Any]]) -> tuple[list[str], list[list[str]]]:
    """Return header and rows of the table for people."""
    header = [name.replace("_ms", " ms") for name in _COLUMNS]
    return header, [[str(phase[name]) for name in _COLUMNS] for phase in phases]
