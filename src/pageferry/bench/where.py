# SPDX-License-Identifier: GPL-2.0-only
"""Choose the machine for a benchmark that moves memory, before anything boots."""

from __future__ import annotations

import argparse

from pageferry import output
from pageferry.bench.layouts import MAX_LAYOUTS
from pageferry.bench.plan import Plan
from pageferry.bench.target import live_obstacle
from pageferry.errors import unsupported, usage_error
from pageferry.units import format_nodes, format_size, whole
from pageferry.vm import topology


def layouts_of(args: argparse.Namespace) -> int:
    """Parse --layouts; a benchmark without that option has one layout."""
    return whole("--layouts", getattr(args, "layouts", "1"), 1, MAX_LAYOUTS)


def choose_topology(args: argparse.Namespace, plan: Plan, verb: str) -> str | None:
    """Choose a topology, and print the reason; None is this machine."""
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


def check_machine(name: str, plan: Plan) -> None:
    """Reject a plan for which the virtual machine has too little memory."""
    machine = topology.load(name)
    hint = f"nodes with memory: {format_nodes(machine.with_memory)}"
    for node in (plan.from_node, plan.to_node):
        found = machine.numbers.get(node)
        if found is None:
            raise unsupported(f"topology {name} has no node {node}", hint=hint)
        memory = found.memory_bytes
        if not memory:
            what = f"node {node} of topology {name} has no memory"
            raise unsupported(what, hint=hint)
        if plan.total_bytes > memory // 2:
            raise unsupported(
                "node without enough memory",
                f"node {node} of topology {name} has {format_size(memory)}",
                f"moving {format_size(plan.total_bytes)} at once takes twice as much",
                _hint(plan, memory),
            )


def _hint(plan: Plan, memory: int) -> str:
    """Suggest a smaller --total, or a larger machine if no total would fit."""
    if memory // 4 >= max(plan.sizes):
        return f"--total {format_size(memory // 4)}"
    return "a --topology with more memory"
