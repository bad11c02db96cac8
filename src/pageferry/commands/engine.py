# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine list` and `pageferry engine set`."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.dma import control
from pageferry.dma.devices import DCBM, DEFAULT_CHANNELS, MAX_CHANNELS
from pageferry.errors import usage_error
from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.modules import Modules
from pageferry.sysfs.offload import OFF, Offload, State
from pageferry.units import whole

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

_ABOUT = {
    "none": "the migrating task copies one folio at a time",
    "cpu": "the migrating task copies whole batches",
    "mtcopy": "several CPUs copy",
    "dcbm": "DMA engines copy",
}


def add_parser(sub: Subparsers) -> None:
    """Add the parsers of both verbs."""
    listing = sub.add_parser("list", help="show the engines of this kernel")
    listing.add_argument("--json", action="store_true")
    listing.set_defaults(run=run_list)
    parser = sub.add_parser(
        "set",
        help="choose the engine that copies pages",
        description="Choose the engine that copies pages. For dcbm, this also loads its\n"
        "module and acquires DMA channels. If a step fails, all is as it was before.",
        epilog="examples:\n"
        "  pageferry engine set mtcopy\n"
        "  pageferry engine set dcbm --for demotion,damon\n"
        "  pageferry engine set none --for compaction",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("name", metavar="NAME", help="an engine, or none")
    parser.add_argument(
        "--for",
        dest="only_for",
        metavar="WORDS",
        help="set the engine of these reasons only; NAME default removes that setting",
    )
    parser.add_argument(
        "--channels",
        metavar="N",
        help=f"DMA channels that dcbm takes at most, 1 to {MAX_CHANNELS} (default: as "
        f"set, else {DEFAULT_CHANNELS})",
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print the writes, do nothing"
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run_list(args: argparse.Namespace) -> int:
    """Show the engines."""
    state = Offload(Files()).read()
    if args.json:
        output.answer_json(state.as_json())
        return 0
    rows = [
        [name, "active" if name == state.engine else "", _ABOUT.get(name, "")]
        for name in state.available_engines
    ]
    output.answer(output.table(["engine", "state", "what"], rows))
    return 0


def run(args: argparse.Namespace) -> int:
    """Set the engine, of all reasons or of some."""
    files = Files(dry_run=args.dry_run)
    modules = Modules(files)
    # Another command that sets the whole machine would undo the change at its end.
    with lock.hold_settings(files):
        state = _set(files, modules, args)
    channels = files.names(f"{DCBM}/channels") if args.name == control.NAME else None
    if args.dry_run:
        show_writes(files, as_json=args.json, commands=modules.commands)
    elif args.json:
        more = {} if channels is None else {"channels": channels}
        output.answer_json({**state.as_json(), **more})
    else:
        exceptions = state.exceptions()
        output.answer(
            "; ".join(
                (
                    f"engine {state.engine}",
                    *(
                        f"{engine} for {reason}"
                        for reason, engine in exceptions.items()
                    ),
                )
            )
        )
        if channels is not None:
            output.talk(f"dcbm has {len(channels)} channels: {' '.join(channels)}")
        if {state.engine, *exceptions.values()} != {OFF}:
            output.talk("to turn it off: pageferry off")
    return 0


def _set(files: Files, modules: Modules, args: argparse.Namespace) -> State:
    if args.name == control.NAME:
        channels = args.channels
        if channels is not None:
            channels = whole("--channels", channels, 1, MAX_CHANNELS)
        return control.set_dcbm(
            files, modules, only_for=args.only_for, channels=channels
        )
    if args.channels is not None:
        raise usage_error("only dcbm has channels", args.name, "leave --channels out")
    return Offload(files).set_engine(args.name, only_for=args.only_for)


def show_writes(files: Files, *, as_json: bool, commands: Sequence[str] = ()) -> None:
    """Print the commands and the writes of a dry run, in order."""
    if as_json:
        writes = [{"path": str(path), "value": value} for path, value in files.writes]
        output.answer_json({"writes": writes, "commands": list(commands)})
    else:
        lines = [f"{value} > {path}" for path, value in files.writes]
        output.answer("\n".join([*commands, *lines]))
