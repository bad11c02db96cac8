# SPDX-License-Identifier: GPL-2.0-only
"""The schema of a result file.

Keys may be added, never renamed or removed: others read these files. A reader
ignores keys that it does not know, and refuses values of the wrong type. The
JSON Schema in docs/reference/result.schema.json is generated from here.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pageferry.errors import PageferryError

Count = Annotated[int, Meta(ge=0)]


class Spread(msgspec.Struct, frozen=True):
    """A figure that was measured several times, as whole numbers."""

    median: Count
    min: Count
    max: Count


class RatioSpread(msgspec.Struct, frozen=True):
    """A ratio that was taken in each round."""

    median: float
    min: float
    max: float


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """One engine with one folio size. What a benchmark does not say is null."""

    bench: str
    # "stock": no engine active. "limit": plain memcpy, no migration at all.
    engine: str
    channels: Count
    threads: Annotated[int, Meta(ge=0, description="0: the engine chooses")]
    folio_bytes: Count
    moved_bytes: Annotated[Count, Meta(description="by each round")]
    rounds: Count
    verified: Annotated[
        bool, Meta(description="every page on its node, every byte right")
    ]
    busy: Annotated[bool, Meta(description="a hog kept every CPU busy")] = False
    # Folios that were no longer whole after the move, in all rounds; null
    # where the kernel does not let us look.
    split_folios: Count | None = None
    # What the engine says it copied itself, in all rounds; null for stock.
    engine_bytes: Count | None = None
    bytes_per_s: Spread | None = None
    # Medians of the ratios of each round, not ratios of medians: what slows
    # the machine for a while slows both sides of a round.
    ratio_to_stock: float | None = None
    ratio_to_stock_spread: RatioSpread | None = None
    share_of_limit: float | None = None
    limit_threads: Count | None = None
    instructions_per_folio: Count | None = None
    instructions_per_folio_min: Count | None = None
    instructions_per_folio_max: Count | None = None
    copy_instructions: Count | None = None
    layouts: Count | None = None


class Kernel(msgspec.Struct, kw_only=True, frozen=True):
    """The kernel that ran."""

    release: str
    version: str
    base: str | None = None
    vanilla: bool | None = None
    image: str | None = None
    image_sha256: str | None = None
    config_sha256: str | None = None


class Machine(msgspec.Struct, kw_only=True, frozen=True):
    """What it ran on."""

    where: Literal["vm", "live"]
    cpu_model: str
    cpus: Count
    nodes: str
    accel: str | None = None
    topology: str | None = None
    host_cpu_model: str | None = None
    host_cpus: Count | None = None
    host_kernel: str | None = None
    host_other_load: Annotated[
        float | None,
        Meta(description="share of the host's CPU time that others took meanwhile"),
    ] = None


Setting = str | int | bool | None


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """A whole result file."""

    schema: Literal["pageferry/result"] = "pageferry/result"
    schema_version: Literal[1] = 1
    command: list[str]
    kernel: Kernel
    machine: Machine
    rows: list[Row]
    # Of the vanilla build, where two kernels were compared.
    stock_kernel: Kernel | None = None
    # As the program in bench/ found and used them.
    settings: dict[str, Setting] = {}
    created: str | None = None
    pageferry_version: str | None = None
    elapsed_ns: Count | None = None
    # Figures of other people's machines, only when asked for.
    published: list[dict[str, Any]] | None = None


def as_builtins(result: Result) -> dict[str, Any]:
    """Give the document as json.dumps() takes it."""
    document: dict[str, Any] = msgspec.to_builtins(result)
    if result.published is None:
        del document["published"]
    return document


def encode(result: Result) -> str:
    """Write the document as text, indented and with a newline at its end."""
    plain = msgspec.json.encode(as_builtins(result))
    return msgspec.json.format(plain, indent=2).decode() + "\n"


def decode(text: str | bytes, source: str | Path = "result") -> Result:
    """Read a document strictly, and say which value is wrong."""
    try:
        return msgspec.json.decode(text, type=Result)
    except msgspec.DecodeError as error:
        raise PageferryError(
            "not a pageferry result", value=source, reason=str(error)
        ) from error


def json_schema() -> str:
    """Generate the JSON Schema that is kept in docs/reference."""
    schema = msgspec.json.schema(Result)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    plain = msgspec.json.encode(schema, order="deterministic")
    return msgspec.json.format(plain, indent=2).decode() + "\n"
