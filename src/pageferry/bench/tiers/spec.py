# SPDX-License-Identifier: GPL-2.0-only
"""`bench tiers`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from pageferry import output
from pageferry.bench import options
from pageferry.bench.lines import Line
from pageferry.bench.options import option, switch
from pageferry.bench.plan import BASE_S, Plan
from pageferry.bench.spec import Benchmark
from pageferry.bench.tiers import checks, policies, rows
from pageferry.bench.tiers.rows import LeftOut, Used
from pageferry.bench.tiers.table import show
from pageferry.errors import usage_error
from pageferry.results.schema import Check, Row
from pageferry.tier import config
from pageferry.units import BASE_BYTES, whole

LOADS = ("static", "moving", "growing")
MEMORY = ("anon", "file")
# By the names of options: the defaults, and those of --quick.
_DEFAULTS = {
    "loads": (",".join(LOADS), LOADS[0]),
    "sizes": ("4K,2M", "4K"),
    "seconds": ("120", "20"),
    "rounds": ("5", "1"),
}
# Filling, verifying, and the starts and ends of policies with emulated CPUs.
_BESIDES_S = 150.0

DESCRIPTION = """\
Use memory of the slow node while something else fills the fast one. Measure how soon
the hot memory is on the fast node, under each policy in turn: nothing, NUMA balancing
with demotion by reclaim, damo, and pageferry tier. The benchmark knows what it
accesses, and counts where. It verifies every byte.

A policy that this machine lacks is left out, with the reason. Takes most of the fast
node's free memory meanwhile. Runs on this machine if it has both nodes, else in a VM."""

EPILOG = """\
examples:
  pageferry bench tiers --vm --quick
  pageferry bench tiers --loads moving --sizes 4K,64K,2M --memory anon,file
  pageferry bench tiers --tier-config /etc/pageferry/tier.toml --check
"""


def _varied(name: str, about: str, metavar: str) -> options.Option:
    usual, quick = _DEFAULTS[name]
    return option(f"--{name}", f"{about} (default: {usual}; quick: {quick})", metavar)


OPTIONS = (
    option("--policies", "policies to measure", "LIST", ",".join(policies.NAMES)),
    _varied("loads", "how the hot memory changes", "LIST"),
    _varied("sizes", "folio sizes from 4K to 2M", "LIST"),
    option("--memory", "anon, or file: a file of tmpfs, 4K only", "LIST", MEMORY[0]),
    option("--hot", "hot memory, at most; the program has more", "SIZE", "128M"),
    _varied("seconds", "time of each measurement", "N"),
    _varied("rounds", "rounds", "N"),
    switch("--until-settled", "end a measurement when its last phase has settled"),
    switch("--quick", "one short round, which says little"),
    option("--tier-config", "configuration of pageferry tier", "FILE", type=Path),
    option("--fast-ns", "of the model: an access to the fast node", "N", "100"),
    option("--slow-ns", "of the model: an access to the slow node", "N", "300"),
    switch(
        "--check",
        f"fail unless tier settles {checks.TIMES_FASTER:g} times as fast as the best "
        f"other policy, and moves at most {checks.MOST_MOVED:g} times its bytes",
    ),
    *options.node_options("second", "first"),
    options.TIMEOUT,
    options.PUBLISHED,
    *options.ENDING,
)


@dataclass(frozen=True, kw_only=True)
class TiersPlan(Plan):
    """The plan of one run. total_bytes are hot."""

    program: ClassVar[str] = "tiers"

    # Policies take turns, and all of them have the engines that are active.
    engines: tuple[str, ...] = ("stock",)
    policies: tuple[str, ...]
    loads: tuple[str, ...]
    memory: tuple[str, ...]
    seconds: int
    until_settled: bool = False
    config: str = ""
    damo: str | None = None
    fast_ns: int = 100
    slow_ns: int = 300

    def arguments(self) -> list[str]:
        """Return the options of bench/tiers."""
        words = [
            *(word for word in self.moving_words() if "--variants" not in word),
            "--policies=" + ",".join(self.policies),
            "--loads=" + ",".join(self.loads),
            "--memory=" + ",".join(self.memory),
            f"--seconds={self.seconds}",
            *(["--until-settled"] if self.until_settled else []),
        ]
        if "damo" in self.policies and self.damo is not None:
            command = policies.damo_command(self.damo, self.to_node, self.from_node)
            words.append(f"--damo={command}")
        if policies.OURS in self.policies:
            words.append(f"--tier={policies.tier_command(self.config)}")
        return words

    def kinds(self) -> int:
        """Count the measurements of each policy in a round."""
        anon = len(self.sizes) if "anon" in self.memory else 0
        file = int("file" in self.memory and BASE_BYTES in self.sizes)
        return len(self.loads) * (anon + file)

    def measurements(self) -> int:
        """Count the lines that the program will print; there is no warm-up."""
        return len(self.policies) * self.kinds() * self.rounds

    def limit_s(self) -> float:
        """Return the time limit of a virtual machine."""
        return BASE_S + self.measurements() * (self.seconds + _BESIDES_S)

    def writes(self) -> list[str]:
        """List the settings that the program writes and restores."""
        return [
            *super().writes(),
            "write /sys/kernel/mm/numa/demotion_enabled",
            "start and stop kdamonds below /sys/kernel/mm/damon/admin",
        ]

    def leaves(self, *, live: bool) -> list[str]:
        """List its other effects on this machine, or on a virtual one."""
        filled = f"fill node {self.to_node} but for a part, while it measures"
        return [*super().leaves(live=live), filled]


def _value(args: argparse.Namespace, name: str) -> str:
    given = getattr(args, name)
    return str(_DEFAULTS[name][args.quick] if given is None else given)


def _policies(text: str, damo: str | None) -> tuple[str, ...]:
    wanted = options.words_of(text, policies.NAMES, "policy")
    if "damo" not in wanted or damo is not None:
        return wanted
    output.warn("damo is left out: it is not installed (pip install damo)")
    left = tuple(policy for policy in wanted if policy != "damo")
    if not left:
        raise usage_error("no policy is left", text, "--policies nothing,tier")
    return left


def _numbers(args: argparse.Namespace) -> dict[str, Any]:
    return {
        "seconds": whole("--seconds", _value(args, "seconds"), 4, 3600),
        "rounds": whole("--rounds", _value(args, "rounds"), 1, 10_000),
        "fast_ns": whole("--fast-ns", args.fast_ns, 1, 1_000_000),
        "slow_ns": whole("--slow-ns", args.slow_ns, 1, 1_000_000),
    }


def make_plan(args: argparse.Namespace) -> TiersPlan:
    """Check the options before any build or boot."""
    text = ""
    if args.tier_config is not None:
        config.load(args.tier_config)
        text = args.tier_config.read_text(encoding="utf-8")
    damo = policies.find_damo()
    made = TiersPlan(
        policies=_policies(args.policies, damo),
        loads=options.words_of(_value(args, "loads"), LOADS, "load"),
        sizes=options.parse_sizes(_value(args, "sizes")),
        memory=options.words_of(args.memory, MEMORY, "kind of memory"),
        total_bytes=options.parse_total(args.hot),
        until_settled=args.until_settled,
        config=text,
        damo=damo,
        **_numbers(args),
        **options.nodes_of(args, 63),
    )
    if not made.kinds():
        raise usage_error("a file has pages of 4K only", args.sizes, "--memory anon")
    others = set(made.policies) - {policies.OURS, "nothing"}
    if args.check and not (others and policies.OURS in made.policies):
        raise usage_error(
            "--check compares tier with balancing or damo", ",".join(made.policies)
        )
    return made


def _rows(plan: TiersPlan, lines: Sequence[Line]) -> list[Row]:
    return rows.make_rows(lines, plan.seconds, plan.fast_ns, plan.slow_ns)


def _warn(lines: Sequence[Line]) -> None:
    for line in lines:
        if isinstance(line, LeftOut):
            output.warn(f"{line.engine} is left out: {line.reason}")


def _judge(args: argparse.Namespace, found: Sequence[Row]) -> list[Check] | None:
    return checks.judge(found) if args.check else None


SPEC = Benchmark(
    name="tiers",
    about="how soon hot memory is on the fast tier, by policy",
    description=DESCRIPTION,
    epilog=EPILOG,
    topology="tiered",
    default_nodes=(1, 0),
    options=OPTIONS,
    make_plan=make_plan,
    lines=(Used, LeftOut),
    make_rows=_rows,
    show=show,
    warn=_warn,
    judge=_judge,
)
