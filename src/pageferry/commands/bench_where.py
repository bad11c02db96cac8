# SPDX-License-Identifier: GPL-2.0-only
"""Where a benchmark that moves memory runs: decided before anything boots."""

from __future__ import annotations

import argparse
from typing import Protocol

from pageferry import output
from pageferry.bench.layouts import MAX_LAYOUTS
from pageferry.bench.target import live_obstacle
from pageferry.errors import unsupported, usage_error
from pageferry.units import format_size, parse_size, whole
from pageferry.vm import topology


class Moves(Protocol):
    """What has to be known about a plan."""

    @property
    def from_node(self) -> int:
        """Where memory is."""

    @property
    def to_node(self) -> int:
        """Where it goes."""

    @property
    def engines(self) -> tuple[str, ...]:
        """Who copies."""

    @property
    def sizes(self) -> tuple[int, ...]:
        """Of folios."""

    @property
    def total_bytes(self) -> int:
        """Bytes of the largest move."""


def add_layouts(parser: argparse.ArgumentParser) -> None:
    """Add the option that says how often a virtual machine is booted."""
    parser.add_argument(
        "--layouts",
        default="1",
        metavar="N",
        help="boots of a VM, so many rounds each (default: %(default)s)",
    )


def layouts_of(args: argparse.Namespace) -> int:
    """Read it; not every benchmark has it."""
    return whole("--layouts", getattr(args, "layouts", "1"), 1, MAX_LAYOUTS)


def choose_topology(args: argparse.Namespace, plan: Moves, verb: str) -> str | None:
    """Decide where to run, and say why; None is this machine."""
    several = layouts_of(args) > 1
    obstacle = live_obstacle(plan.from_node, plan.to_node, plan.engines)
    if several and (args.live or (not args.vm and obstacle is None)):
        raise usage_error(
            "--layouts boots a virtual machine, and this machine is measured",
            args.layouts,
            "--vm",
        )
    if args.live:
        if obstacle is not None:
            raise unsupported(
                "cannot measure on this machine",
                reason=obstacle,
                hint=f"pageferry bench {verb} --vm",
            )
        return None
    if not args.vm and obstacle is None:
        output.talk("measuring on this machine (--vm for a virtual one)")
        return None
    check_machine(args.topology, plan)
    if not args.vm:
        output.talk(f"measuring in a virtual machine: {obstacle}")
    return str(args.topology)


def check_machine(name: str, plan: Moves) -> None:
    """Refuse a plan that the virtual machine cannot hold, before it boots."""
    machine = topology.load(name)
    for node in (plan.from_node, plan.to_node):
        if node >= len(machine.node):
            raise unsupported(
                f"topology {name} has no node {node}",
                hint=f"its nodes: 0-{len(machine.node) - 1}",
            )
        memory = parse_size(machine.node[node].memory)
        if plan.total_bytes > memory // 2:
            raise unsupported(
                "node without enough memory",
                f"node {node} of topology {name} has {format_size(memory)}",
                f"moving {format_size(plan.total_bytes)} at once takes twice as much",
                _hint(plan, memory),
            )


def _hint(plan: Moves, memory: int) -> str:
    """Say what would fit: less, or another machine for what cannot be less."""
    if memory // 4 >= max(plan.sizes):
        return f"--total {format_size(memory // 4)}"
    return "a --topology with more memory"
