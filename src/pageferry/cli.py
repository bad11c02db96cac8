# SPDX-License-Identifier: GPL-2.0-only
"""The command line: build the parser, and run a command."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from collections.abc import Sequence
from importlib import import_module
from typing import TYPE_CHECKING, Any, NoReturn, Protocol, cast

from pageferry import __version__, output
from pageferry.commands import ABOUT
from pageferry.errors import ExitCode, PageferryError, from_os_error
from pageferry.proc import interrupt_on_signals

if TYPE_CHECKING:
    # argparse has no public name for what add_subparsers() returns.
    Subparsers = argparse._SubParsersAction[Any]

# One module in pageferry.commands for each, in the order of --help: the most used ones
# first. A verb of two words is registered with its first word: "kernel build" is
# ("kernel", ...).
COMMANDS: tuple[tuple[str | None, str], ...] = (
    (None, "status"),
    (None, "top"),
    (None, "move"),
    (None, "demo"),
    ("engine", "engine"),
    ("engine", "engine_check"),
    ("interleave", "interleave"),
    (None, "balance"),
    (None, "tier"),
    (None, "exporter"),
    (None, "compare"),
    (None, "off"),
    (None, "doctor"),
    ("bench", "bench"),
    (None, "report"),
    (None, "model"),
    ("kernel", "kernel_build"),
    ("kernel", "kernel_bases"),
    ("kernel", "kernel_series"),
    ("kernel", "kernel_package"),
    ("vm", "vm_run"),
    (None, "fault_campaign"),
)

DESCRIPTION = "Make Linux move pages between NUMA nodes fast."

EPILOG = """\
exit codes: 0 done, 1 failed, 2 usage, 3 this kernel or machine lacks something,
4 skipped, 5 build or VM did not get as far as running, 124 timeout,
130 interrupted; after `vm run --` the command's own

examples:
  pageferry kernel build
  pageferry vm run --topology two-node -- numactl -H
"""


class Command(Protocol):
    """The interface of a module in pageferry.commands."""

    def add_parser(self, sub: Subparsers) -> None:
        """Add the command's parser, with set_defaults(run=...)."""

    def run(self, args: argparse.Namespace) -> int:
        """Run the command, and return its exit code."""


class Parser(argparse.ArgumentParser):
    """A parser that raises its errors, so that --json can print them."""

    def error(self, message: str) -> NoReturn:
        """Raise instead of exiting, so that main() reports every error."""
        raise PageferryError(message, hint=f"{self.prog} --help", code=ExitCode.USAGE)


def first_word(group: str | None, module: str) -> str:
    """Return the first word of a command."""
    return group or module.replace("_", "-")


def _top_parser() -> tuple[argparse.ArgumentParser, Subparsers]:
    parser = Parser(
        prog="pageferry",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument(
        "--version", action="version", version=f"pageferry {__version__}"
    )
    top = parser.add_subparsers(title="commands", metavar="VERB", required=True)
    return parser, top


def make_short_parser() -> argparse.ArgumentParser:
    """Build the parser of command lines without a verb: it loads no command."""
    parser, top = _top_parser()
    for word, about in ABOUT.items():
        top.add_parser(word, help=about)
    return parser


def make_parser(verb: str | None = None) -> argparse.ArgumentParser:
    """Build the parser of all commands, or of those that begin with `verb`.

    Importing only the needed command halves the time of a short one.
    """
    parser, top = _top_parser()
    groups: dict[str, Subparsers] = {}
    for group, name in COMMANDS:
        if verb is not None and verb != first_word(group, name):
            continue
        module = cast(Command, import_module(f"pageferry.commands.{name}"))
        if group is None:
            module.add_parser(top)
            continue
        if group not in groups:
            about = ABOUT[group]
            child = top.add_parser(group, help=about, description=about)
            groups[group] = child.add_subparsers(metavar="VERB", required=True)
        module.add_parser(groups[group])
    return parser


def split_command(argv: Sequence[str]) -> tuple[list[str], list[str] | None]:
    """Separate the tool's words from the guest's command after the first `--`."""
    words = list(argv)
    if "--" not in words:
        return words, None
    cut = words.index("--")
    return words[:cut], words[cut + 1 :]


def complete() -> None:
    """Answer a shell that asks for completions; scripts/completions.py explains it."""
    # Without argcomplete there are no completions, and no error.
    with contextlib.suppress(ImportError):
        import argcomplete

        # The last word may be incomplete, so only a word before it is a verb.
        words = os.environ.get("COMP_LINE", "").split(" ")[1:-1]
        argcomplete.autocomplete(_parser_for(words), always_complete_options=False)


def _parser_for(words: Sequence[str]) -> argparse.ArgumentParser:
    known = bool(words) and words[0] in ABOUT
    return make_parser(words[0]) if known else make_short_parser()


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    if "_ARGCOMPLETE" in os.environ:
        complete()
    words, command = split_command(sys.argv[1:] if argv is None else argv)
    output.prepare()
    interrupt_on_signals()
    try:
        return _run(words, command)
    except BrokenPipeError:
        # The reader closed the pipe. Close stderr, or Python reports the same
        # error again when it flushes stdout at exit.
        sys.stderr.close()
        return int(ExitCode.FAILED)


def _run(words: list[str], command: list[str] | None) -> int:
    """Run one command, and report its error; that may find the pipe closed, too."""
    try:
        args, unknown = _parser_for(words).parse_known_args(words)
        if unknown:
            verb = f"{words[0]} " if words[0] in ABOUT else ""
            raise PageferryError(
                f"unrecognized arguments: {' '.join(unknown)}",
                hint=f"pageferry {verb}--help",
                code=ExitCode.USAGE,
            )
        args.command = command
        # A result file contains the command line.
        args.words = words
        if command is not None and not getattr(args, "takes_command", False):
            raise PageferryError(
                "this verb runs no command after --", code=ExitCode.USAGE
            )
        return int(args.run(args))
    except PageferryError as error:
        failure = error
    except KeyboardInterrupt:
        failure = PageferryError("interrupted", code=ExitCode.INTERRUPTED)
    except BrokenPipeError:
        raise
    except OSError as error:
        failure = from_os_error(error, "system call failed", ExitCode.FAILED)
    output.report_error(failure, as_json="--json" in words)
    return int(failure.code)
