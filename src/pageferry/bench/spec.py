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
from pageferry.bench.plan import Measures
from pageferry.kernel.build import BuildRequest
from pageferry.results.schema import Check, Result, Row

# A folder each, with a spec.py, in the order of --help.
NAMES = (
    *("move_pages", "latency", "cost", "demotion", "promotion"),
    *("hugetlb", "compaction"),
)


class Runs(Protocol):
    """A benchmark with its options, ready to be carried out."""

    # Says how a run would go, and which files it would write.
    def dry_run(self) -> list[str]: ...
    # Measures. Every row is verified.
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
    """A benchmark: its options, its plan, its lines, its rows and how they look."""

    name: str
    about: str
    description: str
    epilog: str
    options: tuple[Option, ...]
    # The parts of a page, between which is an empty line.
    show: Callable[[Result], list[str]]

    # The virtual machine if no other is named; None: it is not the user's choice.
    topology: str | None = "two-node"
    topology_about: str | None = "virtual machine (default: %(default)s)"
    # Options that --help shows apart, and what is above them.
    apart: tuple[Option, ...] = ()
    apart_title: str = ""
    # Whether --help begins with all options, or with a word that stands for them.
    all_in_usage: bool = False

    make_plan: Callable[[argparse.Namespace], Measures] | None = None
    # Lines of this program alone; all programs print the others.
    lines: tuple[type[Line], ...] = ()
    make_rows: Callable[[Any, Sequence[Line]], list[Row]] | None = None
    # In place of these, where a run is more than one program on one machine.
    make_job: Callable[[argparse.Namespace, BuildRequest], Runs] | None = None

    # A simulated device gets a CPU of its own, where there is one.
    simulated_apart: bool = False
    # Figures of others, by what --published says, and how they look below ours.
    published: Mapping[object, tuple[str, ...]] = field(default_factory=dict)
    show_published: Callable[[], str] | None = None
    # Measures first what the plan depends on; gets the job, too.
    settle: Callable[[Any, Any], Measures] | None = None
    # Warns of lines that count even so.
    warn: Callable[[Sequence[Line]], None] | None = None
    judge: Callable[[argparse.Namespace, Sequence[Row]], list[Check] | None] = _unjudged
    # Lists why a run that was carried out is a failure.
    refused: Callable[[argparse.Namespace, Result], list[str]] = _checks_that_fail
    complaint: str = "a check does not hold"


def load(name: str) -> Benchmark:
    """Find a benchmark by the name of its folder."""
    spec: Benchmark = import_module(f"pageferry.bench.{name}.spec").SPEC
    return spec
