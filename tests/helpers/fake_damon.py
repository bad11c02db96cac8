# SPDX-License-Identifier: GPL-2.0-only
"""DAMON's sysfs files, which behave like the kernel's for these tests."""

from __future__ import annotations

import errno
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from pageferry.damon.admin import TOP
from pageferry.errors import PageferryError
from pageferry.sysfs.files import Files

_Content = dict[str, str | None]
_SCHEME: _Content = {
    "action": "stat",
    "target_nid": "-1",
    "apply_interval_us": "0",
    "dests": None,
    "filters/nr_filters": "0",
    "access_pattern/sz/min": "0",
    "access_pattern/sz/max": "0",
    "access_pattern/nr_accesses/min": "0",
    "access_pattern/nr_accesses/max": "0",
    "access_pattern/age/min": "0",
    "access_pattern/age/max": "0",
    "quotas/bytes": "0",
    "quotas/reset_interval_ms": "0",
    "quotas/goals/nr_goals": "0",
    "quotas/weights/sz_permil": "0",
    "quotas/weights/nr_accesses_permil": "0",
    "quotas/weights/age_permil": "0",
    "stats/nr_tried": "7",
    "stats/sz_tried": "81920",
    "stats/sz_applied": "81920",
}
_CONTEXT: _Content = {
    "avail_operations": "vaddr\nfvaddr\npaddr",
    "operations": "paddr",
    "monitoring_attrs/intervals/sample_us": "5000",
    "monitoring_attrs/intervals/aggr_us": "100000",
    "monitoring_attrs/intervals/update_us": "60000000",
    "monitoring_attrs/nr_regions/min": "10",
    "monitoring_attrs/nr_regions/max": "1000",
    "targets/nr_targets": "0",
    "schemes/nr_schemes": "0",
}
# Each count file, and the contents of the numbered directories that it makes.
_COUNTS: dict[str, _Content] = {
    r"nr_kdamonds": {"state": "off", "pid": "-1", "contexts/nr_contexts": "0"},
    r"\d+/contexts/nr_contexts": _CONTEXT,
    r".*/targets/nr_targets": {"pid_target": "0", "regions/nr_regions": "0"},
    r".*/schemes/nr_schemes": _SCHEME,
    r".*/dests/nr_dests": {"id": "0", "weight": "0"},
    r".*/regions/nr_regions": {"start": "0", "end": "0"},
    r".*/goals/nr_goals": {
        "target_metric": "user_input",
        "target_value": "0",
        "current_value": "0",
        "nid": None,
    },
    r".*/filters/nr_filters": {
        "type": "anon",
        "matching": "N",
        "addr_start": "0",
        "addr_end": "0",
    },
}


@dataclass
class FakeDamon(Files):
    """A kernel with DAMON, which refuses a process that has ended.

    dests: whether its schemes have destinations.
    node_goals: whether it measures goals on a node, as Linux 6.16 and later.
    """

    dests: bool = True
    node_goals: bool = False
    threads: int = 1000
    commits: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._fill(self.path(TOP), {"nr_kdamonds": "0"})

    def write(self, name: str, value: str) -> None:
        """Do the same as the kernel on a write."""
        super().write(name, value)
        if self.dry_run or not name.startswith(f"{TOP}/"):
            return
        short = name.removeprefix(f"{TOP}/")
        for pattern, content in _COUNTS.items():
            if re.fullmatch(pattern, short):
                self._count(self.path(name), int(value), content)
        if short.endswith("/state"):
            self._command(self.path(name), value)

    def running(self) -> list[str]:
        """List the running kdamonds."""
        states = self.path(TOP).glob("*/state")
        return sorted(p.parent.name for p in states if p.read_text() == "on\n")

    def _count(self, path: Path, count: int, content: _Content) -> None:
        if path.name == "nr_kdamonds" and self.running():
            raise PageferryError("busy", reason="EBUSY in the test", value=path)
        for old in path.parent.iterdir():
            if old.name.isdecimal():
                shutil.rmtree(old)
        for number in range(count):
            self._fill(path.parent / str(number), content)

    def _fill(self, directory: Path, content: _Content) -> None:
        for name, value in content.items():
            if name == "nid":
                if not self.node_goals:
                    continue
                value = "-1"
            elif value is None:
                if not self.dests:
                    continue
                name, value = f"{name}/nr_{name}", "0"
            path = directory / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{value}\n")

    def _command(self, path: Path, value: str) -> None:
        was = getattr(self, "_states", {}).get(path, "off")
        if value in ("on", "commit"):
            for target in path.parent.glob("contexts/0/targets/*/pid_target"):
                pid = target.read_text().strip()
                if pid != "0" and not self.exists(f"/proc/{pid}/stat"):
                    path.write_text(f"{was}\n")
                    raise PageferryError(
                        f"cannot write {value!r} to",
                        value=path,
                        reason=os.strerror(errno.EINVAL),
                    )
        if value not in ("on", "off"):
            self.commits.append(value)
            path.write_text(f"{was}\n")
            return
        self._states = {**getattr(self, "_states", {}), path: value}
        self.threads += value == "on"
        pid = str(self.threads) if value == "on" else "-1"
        (path.parent / "pid").write_text(f"{pid}\n")
