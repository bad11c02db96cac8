# SPDX-License-Identifier: GPL-2.0-only
"""The configuration file of the tiers: TOML, without unknown keys."""

from __future__ import annotations

from pathlib import Path

import msgspec

from pageferry.balance.config import Program
from pageferry.errors import PageferryError, usage_error
from pageferry.interleave.user_space import Quota, parse_quota
from pageferry.units import parse_seconds

DEFAULT = Path("/etc/pageferry/tier.toml")


class Config(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """The whole configuration."""

    # The node of each tier, the fastest first; by default the kernel's memory tiers.
    tiers: list[list[int]] = []
    # Whose memory moves; without any, that of all programs, by physical address.
    process: list[Program] = []
    # The fraction of each faster tier that stays free.
    headroom: float = 0.05
    # Memory without an access for this long is cold.
    cold_after: str = "30s"
    # SIZE/TIME: how fast memory moves in each direction.
    rate: str = "1G/1s"
    # The fraction of time in which programs may wait for memory.
    stall: float = 0.01
    interval: str = "5s"

    @property
    def limit(self) -> Quota:
        """Return the highest rate."""
        return parse_quota(self.rate)


def load(path: Path) -> Config:
    """Read a configuration file."""
    try:
        text = path.read_bytes()
    except OSError as error:
        raise usage_error(
            f"cannot read the configuration: {error.strerror}",
            path,
            "pageferry tier --name PROGRAM needs no file; docs/how-to/tier.md has one",
        ) from error
    return parse(text, path)


def parse(text: bytes | str, source: str | Path) -> Config:
    """Parse a configuration; an error names the wrong value."""
    try:
        config = msgspec.toml.decode(text, type=Config)
        problem = problem_of(config)
    except (msgspec.MsgspecError, ValueError, PageferryError) as error:
        problem = str(error)
    if problem is not None:
        raise usage_error(f"configuration makes no sense: {problem}", source)
    return config


def problem_of(config: Config) -> str | None:
    """Return the first wrong value that msgspec does not find."""
    nodes = [node for tier in config.tiers for node in tier]
    if config.tiers and (
        len(config.tiers) < 2 or any(len(tier) != 1 for tier in config.tiers)
    ):
        return "tiers has two lists or more, each with one node: [[0], [1]]"
    if len(nodes) != len(set(nodes)) or any(node < 0 for node in nodes):
        return f"a node belongs to one tier: {config.tiers}"
    for program in config.process:
        if program.problem:
            return program.problem
    if not 0.001 <= config.headroom < 0.5:
        return "headroom is a fraction of a tier: 0.05 for 5%"
    if not 0 < config.stall <= 1:
        return "stall is a fraction of time: 0.01 for 1%"
    if parse_seconds(config.interval) < 1 or parse_seconds(config.cold_after) < 1:
        return "interval or cold_after is shorter than 1s"
    # Parse the quota, which raises an error for a wrong one.
    _ = config.limit
    return None
