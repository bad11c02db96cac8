# SPDX-License-Identifier: GPL-2.0-only
"""The specification of a benchmark; all else is the same for every benchmark."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from typing import Any, Protocol

from pageferry.bench.lines import Line
from pageferry.bench.options import Option
from pageferry.bench.plan import Plan
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Check, Result, Row

# A folder each, with a spec.py, in the order of --help.
NAMES = (
    *("move_pages", "latency", "cost", "demotion", "promotion"),
    *("tiers", "hugetlb", "compaction", "scale", "copy"),
)


class Runs(Protocol):
    """A benchmark with its options, ready to run."""

    # Describes a run and the files that it would write.
    def dry_run(self) -> list[str]: ...
    # Plan and verifies every row.
    def run(self) -> Result: ...


def _unjudged(_: argparse.Namespace, __: Sequence[Row]) -> list[Check] | None:
    return None


def _checks_that_fail(_: argparse.Namespace, result: Result) -> list[str]:
    return [
        f"{check.name}: {check.measured:.2f}, wanted {check.wanted}"
        for check in result.checks or []
        if not check.ok
    ]


@dataclass(frozen=True, kw_only=True)
class Benchmark:
    """A benchmark: its options, plan, lines, rows and tables."""

    name: str
    about: str
    description: str
    epilog: str
    options: tuple[Option, ...]
    # The parts of a page, separated by empty lines.
    show: Callable[[Result], list[str]]

    # Runs on this machine alone, and changes nothing on it.
    native: bool = False
    # The default virtual machine; None: the user cannot choose.
    topology: str | None = "two-node"
    topology_about: str | None = "virtual machine (default: %(default)s)"
    # Ranks of --from-node and --to-node among the nodes with memory.
    default_nodes: tuple[int, int] = (0, 1)
    # Options in a separate section of --help, and its title.
    apart: tuple[Option, ...] = ()
    apart_title: str = ""
    # Whether --help lists all options first, or one word for them.
    all_in_usage: bool = False

    make_plan: Callable[[argparse.Namespace], Plan] | None = None
    # Lines of this program only; all programs print the others.
    lines: tuple[type[Line], ...] = ()
    make_rows: Callable[[Any, Sequence[Line]], list[Row]] | None = None
    # Replaces these for runs of several programs or machines.
    make_job: Callable[[argparse.Namespace, BuildRequest], Runs] | None = None

    # A simulated device gets its own CPU, if there is one.
    simulated_apart: bool = False
    # Published figures by their --published name, and their table below ours.
    published: Mapping[object, tuple[str, ...]] = field(default_factory=dict)
    show_published: Callable[[], str] | None = None
    # Plan the rates that the plan depends on; gets the job, too.
    settle: Callable[[Any, Any], Plan] | None = None
    # Warns about lines, which count nevertheless.
    warn: Callable[[Sequence[Line]], None] | None = None
    judge: Callable[[argparse.Namespace, Sequence[Row]], list[Check] | None] = _unjudged
    # Lists the reasons why a finished run is a failure.
    refused: Callable[[argparse.Namespace, Result], list[str]] = _checks_that_fail
    complaint: str = "a check does not hold"


def load(name: str) -> Benchmark:
    """Load a benchmark by the name of its folder."""
    spec: Benchmark = import_module(f"pageferry.bench.{name}.spec").SPEC
    return spec
