# SPDX-License-Identifier: GPL-2.0-only
"""Choose the machine for a benchmark that moves memory, before anything boots."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from pageferry import output
from pageferry.bench.layouts import MAX_LAYOUTS
from pageferry.bench.plan import Plan
from pageferry.bench.target import live_obstacle
from pageferry.errors import unsupported, usage_error
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.units import format_nodes, format_size, whole
from pageferry.vm import topology


def layouts_of(args: argparse.Namespace) -> int:
    """Parse --layouts; a benchmark without that option has one layout."""
    return whole("--layouts", getattr(args, "layouts", "1"), 1, MAX_LAYOUTS)


def choose_nodes(args: argparse.Namespace, ranks: Sequence[int]) -> None:
    """Fill in the nodes that the user did not name, with nodes that have memory.

    ranks: those of the source and the target among these nodes.
    """
    names = ("from_node", "to_node") if hasattr(args, "from_node") else ("node",)
    given = [getattr(args, name) for name in names]
    if None not in given:
        return
    here = [node.number for node in read_nodes(Files()) if node.total_bytes]
    chosen = _by_rank(given, ranks, here)
    engines = (getattr(args, "engines", "stock") or "cpu").split(",")
    # The plan rejects a word that is no number.
    first, last = (int(n) if n.isdecimal() else 0 for n in (chosen[0], chosen[-1]))
    obstacle = live_obstacle(first, last, engines)
    if not args.live and (args.vm or obstacle is not None):
        chosen = _by_rank(given, ranks, topology.load(args.topology).with_memory)
    for name, node in zip(names, chosen, strict=True):
        setattr(args, name, node)


def _by_rank(
    given: Sequence[str | None], ranks: Sequence[int], nodes: Sequence[int]
) -> list[str]:
    free = [str(node) for node in nodes if str(node) not in given]
    if any(given):
        ranks = (0, 0)
    # If the machine has too few nodes, the error has to name one that it lacks.
    beyond = max(nodes, default=-1) + 1 - len(free)
    return [
        text or (free[rank] if rank < len(free) else str(beyond + rank))
        for text, rank in zip(given, ranks, strict=False)
    ]


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
