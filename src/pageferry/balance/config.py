# SPDX-License-Identifier: GPL-2.0-only
"""The configuration file of the balancer: TOML, without unknown keys."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec

from pageferry.balance.balancer import Settings
from pageferry.errors import PageferryError, usage_error
from pageferry.interleave.user_space import Quota, parse_quota
from pageferry.units import parse_seconds

DEFAULT = Path("/etc/pageferry/balance.toml")
SOURCES = ("auto", "resctrl", "perf", "recorded")


class Program(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Processes by PID, name or cgroup, with their descendants unless excluded."""

    pid: int | None = None
    # The name in /proc/PID/comm.
    name: str | None = None
    # A directory of the cgroup file system; includes the cgroups below it.
    cgroup: str | None = None
    include_children: bool = True

    @property
    def problem(self) -> str | None:
        """Return why this names no processes, if so."""
        given = (self.pid, self.name, self.cgroup)
        if sum(value is not None for value in given) != 1:
            return "a [[process]] has one of pid, name and cgroup"
        return None

    def __str__(self) -> str:
        if self.pid is not None:
            return f"pid {self.pid}"
        return f"name {self.name}" if self.name is not None else f"cgroup {self.cgroup}"


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

    process: list[Program]
    # GB/s (1e9) by node; by default from HMAT, or measured.
    bandwidth: dict[str, float] = {}
    # The node of memory that is not spread; by default the first one with CPUs.
    home: int | None = None
    source: Literal["auto", "resctrl", "perf", "recorded"] = "auto"
    record: str | None = None
    interval: str = "1s"
    spread_above: float = 0.9
    home_below: float = 0.8
    hold: str = "5s"
    min_gain: float = 0.1
    # SIZE/TIME: the bytes that may move in a period, and their rate.
    budget: str | None = None
    quota: str | None = None
    # The interval between passes over new memory.
    again: str = "1m"
    by: Literal["kernel", "user"] | None = None
    on_stop: Literal["leave", "home"] = "leave"
    # A file for node_exporter, and an address for Prometheus.
    metrics: str | None = None
    listen: str | None = None

    @property
    def settings(self) -> Settings:
        """Return the settings of the balancer."""
        return Settings(
            spread_above=self.spread_above,
            home_below=self.home_below,
            hold_s=parse_seconds(self.hold),
            min_gain=self.min_gain,
            budget=None if self.budget is None else parse_quota(self.budget),
        )

    @property
    def move_quota(self) -> Quota | None:
        """Return the rate at which pages may move."""
        return None if self.quota is None else parse_quota(self.quota)


def load(path: Path) -> Config:
    """Read a configuration file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise usage_error(
            f"cannot read the configuration: {error.strerror}",
            path,
            "pageferry balance --name PROGRAM needs none; docs/how-to/balance.md has one",
        ) from error
    return parse(text, path)


def parse(text: bytes | str, source: str | Path) -> Config:
    """Parse a configuration; an error names the wrong value."""
    try:
        config = msgspec.toml.decode(text, type=Config)
        problem = _problem(config)
    except (msgspec.MsgspecError, ValueError, PageferryError) as error:
        problem = str(error)
    if problem is not None:
        raise usage_error(f"configuration makes no sense: {problem}", source)
    return config


def _problem(config: Config) -> str | None:
    """Return the first wrong value that msgspec does not find."""
    if not config.process:
        return "there is no [[process]]"
    for program in config.process:
        if program.problem:
            return program.problem
    if not 0 < config.home_below < config.spread_above <= 1:
        return "0 < home_below < spread_above <= 1 must hold"
    if not 0 <= config.min_gain <= 10:
        return "min_gain is a ratio: 0.1 for 10%"
    if (config.source == "recorded") != (config.record is not None):
        return "source = 'recorded' and record = FILE belong together"
    if any(
        not node.isdecimal() or rate <= 0 for node, rate in config.bandwidth.items()
    ):
        return "[bandwidth] has lines NODE = GB/s"
    if parse_seconds(config.interval) < 0.05 or parse_seconds(config.again) < 1:
        return "interval or again is too short"
    # Parse the times and quotas, which raises an error for wrong ones.
    _ = config.settings, config.move_quota
    return None
