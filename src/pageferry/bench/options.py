# SPDX-License-Identifier: GPL-2.0-only
"""The options of benchmarks as tables, and the parsers of their values."""

from __future__ import annotations

import argparse
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pageferry.errors import usage_error
from pageferry.units import BASE_BYTES, MIB, PMD_BYTES, parse_size, whole

# "off": no engine, but pages are unmapped and mapped in batches.
ENGINES = ("stock", "off", "cpu", "mtcopy", "dcbm")
MAX_THREADS = 32
MAX_CHANNELS = 64
MAX_MBPS = 1_000_000

# The name, and the arguments for argparse.
Option = tuple[str, Mapping[str, Any]]


def option(
    name: str,
    about: str | None,
    metavar: str | None = None,
    default: str | None = None,
    **more: Any,  # noqa: ANN401
) -> Option:
    """Describe an option; its default follows its description."""
    if about is not None and default is not None:
        about = f"{about} (default: %(default)s)".strip()
    given = {"help": about, "metavar": metavar, "default": default, **more}
    return name, {key: value for key, value in given.items() if value is not None}


def switch(name: str, about: str, **more: Any) -> Option:  # noqa: ANN401
    """Describe an option without a value."""
    return option(name, about, action="store_true", **more)


THREADS = "threads of mtcopy, including the caller"
CHANNELS = "DMA channels of dcbm"
# For engines that have one size.
ONE_OF_EACH = (
    option("--threads", THREADS, "N", "2"),
    option("--channels", CHANNELS, "N", "1"),
    option(
        "--channel-mbps",
        "MB/s of each simulated channel; 0: the CPU's rate",
        *("N", "0"),
    ),
)
ROUNDS = option("--rounds", "rounds that count", "N", "5")


def node_options(source: str = "first", target: str = "second") -> tuple[Option, ...]:
    """List the options of the nodes, whose defaults are nodes that have memory."""
    return (
        option(
            "--from-node",
            f"node of the memory (default: {source} with memory)",
            "N",
        ),
        option(
            "--to-node",
            f"node that it moves to (default: {target} with memory)",
            "N",
        ),
    )


REACH = option(
    "--max-unmapped-us",
    "limit of a folio's unmapped time; 0: none (default: the kernel's)",
    "N",
)
LAYOUTS = option("--layouts", "boots of a VM, each with all rounds", "N", "1")
TIMEOUT = option("--timeout", "end a virtual machine after this time", "TIME")
PUBLISHED = switch("--published", "also print published figures of other projects")
OUTPUT = option(
    "--output",
    "write the result there (default: below the XDG state directory)",
    "FILE",
    type=Path,
)
JSON = switch("--json", "print the result as JSON")
DRY_RUN = switch("--dry-run", "print the steps, do nothing")
ENDING = (OUTPUT, JSON, DRY_RUN)


# --- the values of options ----------------------------------------------------


def words_of(text: str, known: Sequence[str], what: str) -> tuple[str, ...]:
    """Parse a list of names without duplicates."""
    words = tuple(word.strip() for word in text.split(","))
    for word in words:
        if word not in known:
            raise usage_error(f"unknown {what}", word, "known: " + ", ".join(known))
    if len(set(words)) != len(words):
        raise usage_error(f"the same {what} is listed twice", text)
    return words


def parse_engines(text: str, known: Sequence[str] = ENGINES) -> tuple[str, ...]:
    """Parse a list of engine names."""
    return words_of(text, known, "engine")


def parse_list(text: str, what: str, low: int, high: int) -> tuple[int, ...]:
    """Parse a list of numbers without duplicates."""
    found = []
    for word in text.split(","):
        digits = word.strip()
        # int() alone would accept "1_6".
        if not (digits.isascii() and digits.isdigit() and low <= int(digits) <= high):
            raise usage_error(f"not {what}", word, f"from {low} to {high}")
        found.append(int(digits))
    if len(set(found)) != len(found):
        raise usage_error(f"{what} is listed twice", text)
    return tuple(found)


def parse_threads(text: str) -> tuple[int, ...]:
    """Parse a list of thread counts for mtcopy, including the caller."""
    return parse_list(text, "a number of threads", 1, MAX_THREADS)


def parse_channels(text: str) -> tuple[int, ...]:
    """Parse a list of numbers of DMA channels."""
    return parse_list(text, "a number of DMA channels", 1, MAX_CHANNELS)


def parse_powers(
    text: str, low: int, high: int, what: str, hint: str
) -> tuple[int, ...]:
    """Parse a list of sizes, all different powers of two."""
    sizes = []
    for word in text.split(","):
        size = parse_size(word)
        if not low <= size <= high or size & (size - 1):
            raise usage_error(f"not {what}", word, hint)
        sizes.append(size)
    if len(set(sizes)) != len(sizes):
        raise usage_error("a size is listed twice", text)
    return tuple(sizes)


def parse_sizes(text: str) -> tuple[int, ...]:
    """Parse a list of folio sizes: 4K,64K,2M, or all."""
    if text == "all":
        return tuple(BASE_BYTES << order for order in range(10) if order != 1)
    hint = "a power of two from 4K to 2M, or all"
    return parse_powers(text, BASE_BYTES, PMD_BYTES, "a folio size", hint)


def parse_total(text: str, largest: int = PMD_BYTES) -> int:
    """Parse the total of each call, in folios of up to `largest`."""
    total = parse_size(text)
    largest = max(largest, PMD_BYTES)
    if not total or total % largest:
        raise usage_error(
            f"total is not a multiple of {largest // MIB}M",
            text,
            "every folio size has to divide it: "
            + ("64M, 256M" if largest == PMD_BYTES else f"{largest // MIB}M"),
        )
    return total


def nodes_of(args: argparse.Namespace, most: int) -> dict[str, Any]:
    """Parse the source and the target node."""
    from_node = whole("--from-node", args.from_node, 0, most)
    to_node = whole("--to-node", args.to_node, 0, most)
    if from_node == to_node:
        raise usage_error(
            "--from-node and --to-node are the same: nothing would move", args.to_node
        )
    return {"from_node": from_node, "to_node": to_node}


def shared(args: argparse.Namespace) -> dict[str, Any]:
    """Check the options that most benchmarks have."""
    reach = args.max_unmapped_us
    return {
        "channel_mbps": whole("--channel-mbps", args.channel_mbps, 0, MAX_MBPS),
        "rounds": whole("--rounds", args.rounds, 1, 10_000),
        "max_unmapped_us": None
        if reach is None
        else whole("--max-unmapped-us", reach, 0, 2**32 - 1),
    }


def one_of_each(args: argparse.Namespace) -> dict[str, Any]:
    """Check the same options and ONE_OF_EACH."""
    return {
        "threads": (whole("--threads", args.threads, 1, MAX_THREADS),),
        "channels": (whole("--channels", args.channels, 1, MAX_CHANNELS),),
        **shared(args),
    }
