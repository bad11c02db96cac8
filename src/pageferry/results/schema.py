# SPDX-License-Identifier: GPL-2.0-only
"""The schema of a result file.

Keys may be added, never renamed or removed: others read these files. A reader
ignores keys that it does not know, and refuses values of the wrong type. The
JSON Schema in docs/reference/result.schema.json is generated from here.

Version 2 has what one benchmark alone says in a part of the row, with the name of that
benchmark. In version 1 all of it lay side by side.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from pageferry.errors import PageferryError

Count = Annotated[int, Meta(ge=0)]


def about(text: str) -> Meta:
    """Describe a field in the JSON Schema."""
    return Meta(description=text)


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


class Unmapped(msgspec.Struct, kw_only=True, frozen=True):
    """How long folios were unmapped, in ns."""

    first: Annotated[
        Count | None, about("from the first unmapping to the first folio back")
    ] = None
    mean: Count
    p50: Count | None = None
    p99: Count
    last: Annotated[Count, about("of the folio that took longest")]


class Waited(msgspec.Struct, kw_only=True, frozen=True):
    """Threads that waited for a folio to come back: medians of rounds."""

    threads: Count
    sum: Annotated[Count, about("ns that all of them waited")]
    p99: Count | None = None
    last: Count | None = None


class Touch(msgspec.Struct, kw_only=True, frozen=True):
    """Progress of a thread that touched the memory while it moved."""

    mode: Literal["read", "write"]
    touches: Annotated[Spread, about("in each round")]
    quiet_ns: Annotated[Count, about("median touch when nothing moves")]
    threshold_ns: Annotated[
        Count, about("longer touches lose time: largest of all rounds")
    ]
    p99_ns: Count
    slowest_ns: Annotated[Count, about("of all rounds")]
    slow: Annotated[Count, about("touches that lost time, all rounds")]
    slept: Annotated[Count, about("slow touches that slept: they waited for a folio")]
    lost_ns: Annotated[Spread, about("in each round")]
    lost_ns_all: Annotated[Count, about("in all rounds")]
    slept_ns_all: Annotated[Count, about("of that, in touches that slept")]


class Slowed(msgspec.Struct, kw_only=True, frozen=True):
    """Simulated channels got slower in the middle of each move.

    The unmapped times are then those after that, without some first windows.
    """

    after_percent: Count
    factor: Count
    skipped_windows: Annotated[
        Count, about("between the change and the first that counts")
    ]


class Cost(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of `bench cost` besides instructions_per_folio."""

    instructions_per_folio_min: Count | None = None
    instructions_per_folio_max: Count | None = None
    # Sizes between a page and 2M: instructions_per_folio is of the first move of
    # fresh memory, and this of the mean of the moves after it.
    later_instructions_per_folio: Count | None = None
    # Folios that the kernel counted as partially mapped after the last move.
    partially_mapped_folios: Count | None = None
    # Transfers that dcbm submitted, and those of them that had to interrupt. Drivers
    # may interrupt more seldom.
    descriptors_per_1000_folios: Count | None = None
    interrupts_per_1000_folios: Count | None = None


class Latency(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of `bench latency` besides unmapped_ns, and its settings."""

    unmapped_ns_min: Unmapped | None = None
    unmapped_ns_max: Unmapped | None = None
    waited_ns: Waited | None = None
    slowed: Slowed | None = None
    # The limits of an engine; null where none was active.
    batch_cap_pages: Count | None = None
    max_windows: Count | None = None
    streaming: bool | None = None
    max_unmapped_us: Annotated[Count | None, about("0: no limit in time")] = None
    default_limit: Annotated[
        bool | None, about("the kernel measured the limit itself")
    ] = None
    windows: Annotated[Spread | None, about("that each move was worked through in")] = (
        None
    )
    over_limit_folios: Annotated[Count | None, about("in all rounds")] = None
    cpu_share: Annotated[
        bool | None, about("the CPU copied a share beside the channels")
    ] = None
    knee: Annotated[
        bool | None, about("smallest cap with 90% of the best rate of its sweep")
    ] = None
    role: Annotated[str | None, about("what --check takes this row for")] = None


class ByKernel(msgspec.Struct, kw_only=True, frozen=True):
    """Memory that the kernel moved by itself: how, and who copied it."""

    method: Annotated[str | None, about("what moved the memory")] = None
    cpu_bytes: Annotated[Count | None, about("left to the CPU, in all rounds")] = None
    share_offloaded: Annotated[
        float | None, about("the engine's part of what was moved")
    ] = None
    folios_per_batch: Annotated[
        float | None, about("mean of all that were looked at for an engine")
    ] = None


class ByTier(ByKernel, kw_only=True, frozen=True):
    """Memory that the kernel moved to another tier."""

    # Bytes of all rounds that were to move, and did not reach the other node.
    left_bytes: Count | None = None


class Demotion(ByTier, kw_only=True, frozen=True):
    """Figures of `bench demotion` alone."""

    folios_per_call: Count | None = None
    ratio_to_single: Annotated[
        RatioSpread | None, about("to one page per call, in each round")
    ] = None
    futile_ns: Annotated[
        Spread | None,
        about(
            "what reclaim went on for when the last page had been demoted; "
            "not in bytes_per_s, unless null: not known"
        ),
    ] = None
    # In each round, of the cgroup; null without CONFIG_PSI.
    stall_some_us: Spread | None = None
    stall_full_us: Spread | None = None
    # In all rounds, by /proc/vmstat, of the whole machine.
    pgdemote_kswapd: Count | None = None
    pgdemote_direct: Count | None = None
    pgdemote_khugepaged: Count | None = None
    pgdemote_proactive: Count | None = None


class Promotion(ByTier, kw_only=True, frozen=True):
    """Figures of `bench promotion` alone."""

    # In all rounds, by /proc/vmstat, of the whole machine.
    pgpromote_success: Count | None = None
    first_promotion_ns: Annotated[
        Spread | None, about("until the kernel had promoted the first folio")
    ] = None


class Tiers(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of `bench tiers` alone. The engine of a row is its policy."""

    load: Annotated[str | None, about("how the hot memory changes")] = None
    memory: Annotated[str | None, about("anon, or file: a file of tmpfs")] = None
    hot_bytes: Count | None = None
    program_bytes: Count | None = None
    fast_share: Annotated[
        RatioSpread | None,
        about("of the accesses, served by the fast tier: the mean over each round"),
    ] = None
    settled_ms: Annotated[
        Spread | None,
        about(
            "until fast_share stays within 95% of the best possible: the mean of the "
            "load's phases; a phase that does not settle counts in full"
        ),
    ] = None
    phase_settled_ms: Annotated[list[Count], about("the same by phase, medians")] = []
    phases: Annotated[Count, about("in all rounds")] = 0
    settled_phases: Annotated[Count, about("of these, those that settled")] = 0
    migrated_bytes: Annotated[
        Spread | None, about("by pgmigrate_success of /proc/vmstat, all programs")
    ] = None
    up_bytes: Annotated[Spread | None, about("by a sample of the program's pages")] = (
        None
    )
    down_bytes: Annotated[Spread | None, about("by the same sample")] = None
    ping_pong_share: Annotated[
        float | None, about("of promoted pages, demoted again within a minute")
    ] = None
    # In all rounds, by /proc/vmstat, of the whole machine. Moves by DAMON are neither.
    pgpromote_success: Count | None = None
    pgdemote: Count | None = None
    stall_some_us: Annotated[
        Spread | None, about("of the whole machine; null without CONFIG_PSI")
    ] = None
    longest_access_ns: Annotated[
        Spread | None, about("256 accesses, the longest ones of a round")
    ] = None
    model_access_ns: Annotated[
        Spread | None,
        about("a model: the mean of the counted accesses with these latencies"),
    ] = None
    model_fast_ns: Count | None = None
    model_slow_ns: Count | None = None
    goals: Annotated[
        bool | None, about("DAMON tuned its quotas by goals; null: no DAMON")
    ] = None
    at_ms: Annotated[list[Count], about("the ends of parts of a round")] = []
    share_over_time: Annotated[
        list[RatioSpread], about("fast_share in each of these parts")
    ] = []


class Compaction(ByKernel, kw_only=True, frozen=True):
    """Figures of `bench compaction` alone. A round allocated so many pages at most."""

    asked_pages: Count | None = None
    allocated_pages: Annotated[Spread | None, about("huge pages, in each round")] = None
    wall_ns: Annotated[
        Spread | None, about("until they were there, or no more could be")
    ] = None
    wall_ratio_to_stock: Annotated[
        RatioSpread | None, about("of the time for each huge page")
    ] = None
    thread_ns: Annotated[
        Spread | None, about("CPU time of the thread that allocated")
    ] = None
    thread_ratio_to_stock: Annotated[
        RatioSpread | None, about("of thread_ns for each huge page")
    ] = None
    # Shares of all rounds' time that the CPU of the measurement spent so, by ticks.
    user_share: float | None = None
    system_share: float | None = None
    idle_share: float | None = None
    system_share_to_stock: Annotated[
        RatioSpread | None, about("of system_share, in each round")
    ] = None
    thread_share_to_stock: Annotated[
        RatioSpread | None, about("of thread_ns / wall_ns, in each round")
    ] = None
    migrated_pages: Annotated[
        Spread | None, about("by /proc/vmstat, of the whole machine")
    ] = None
    scanned_pages: Annotated[
        Spread | None, about("for pages to migrate; by /proc/vmstat")
    ] = None
    hog_iterations: Annotated[
        Spread | None, about("of the hog on that CPU, in wall_ns")
    ] = None
    hog_ratio_to_stock: Annotated[
        RatioSpread | None, about("iterations in the same time")
    ] = None
    hog_until_stock_is_done: Annotated[
        RatioSpread | None,
        about(
            "iterations until stock was done, as a ratio to stock's hog; "
            "after a faster engine, the hog has the CPU alone"
        ),
    ] = None


class Grown(msgspec.Struct, frozen=True):
    """The least value early in a long run, and late in it."""

    before: Count
    after: Count


class Scale(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of `bench scale` alone."""

    part: Annotated[str | None, about("sizes, movers or life")] = None
    call_pages: Annotated[Count | None, about("of each call; 0: all in one")] = None
    size_bytes: Annotated[Count | None, about("that the list names")] = None
    region_bytes: Annotated[
        Count | None, about("of memory; a longer list names it again for the way back")
    ] = None
    movers: Annotated[Count | None, about("at once")] = None
    together: Annotated[str | None, about("processes, or threads of one process")] = (
        None
    )
    growth: Annotated[
        float | None,
        about("cost of a page, to that of the smallest list or the fewest movers"),
    ] = None
    pages_per_guest_s: Annotated[
        Count | None,
        about("of a clock that counts the instructions of all CPUs, not a real rate"),
    ] = None
    locks: Annotated[
        str | None,
        about("for which CPUs waited most often, and how often; null: not counted"),
    ] = None
    calls: Annotated[Count | None, about("of move_pages(2) in all rounds")] = None
    used_bytes: Annotated[Grown | None, about("all memory that is not free")] = None
    slab_bytes: Grown | None = None
    percpu_bytes: Annotated[Grown | None, about("counters and histograms among it")] = (
        None
    )
    pool_objects: Annotated[
        Grown | None, about("in use, of our caches; null: not counted")
    ] = None


class Copy(msgspec.Struct, kw_only=True, frozen=True):
    """Figures of `bench copy` alone. Its engines are routines."""

    memory: Annotated[
        str | None,
        about(
            "cold: in no cache; read: the same, and the copy is read at once; warm: in"
            " the caches; boot: as the kernel measures at boot"
        ),
    ] = None
    chase_alone_per_s: Annotated[
        Count | None, about("pointers that a thread on another CPU follows: median")
    ] = None
    chase_ratio: Annotated[
        RatioSpread | None, about("of that, while memory was copied")
    ] = None
    kernel_chooses: Annotated[
        bool | None, about("for large folios; null: not a row of boot")
    ] = None


class Row(msgspec.Struct, kw_only=True, frozen=True):
    """One engine with one folio size, and what one benchmark alone says of it.

    A figure that the benchmark does not have is null. Of the last parts a file has
    only the part of the row's own benchmark.
    """

    bench: str
    # "stock": Linux as it is, or set to behave so. "off": with our changes, but
    # no engine active. "limit": plain memcpy, no migration at all.
    engine: str
    channels: Count
    channel_mbps: Annotated[
        Count | None, about("MB/s of each simulated channel; 0: as a CPU copies")
    ] = None
    threads: Annotated[int, Meta(ge=0, description="0: the engine chooses")]
    folio_bytes: Count
    pages: Annotated[str | None, about("of 4K: what --pages says")] = None
    path: Annotated[
        str | None, about("of `bench cost`: what --paths says; null: move_pages")
    ] = None
    busy: Annotated[
        bool, about("a hog kept every CPU busy; of `bench compaction`, the caller's")
    ] = False
    moved_bytes: Annotated[Count, about("by each round")]
    rounds: Count
    layouts: Count | None = None
    verified: Annotated[bool, about("every page on its node, every byte right")]
    # Folios that were no longer whole after the move, in all rounds; null
    # where the kernel does not let us look.
    split_folios: Count | None = None
    # Bytes that the engine reports as copied, in all rounds; null for stock.
    engine_bytes: Count | None = None
    bytes_per_s: Spread | None = None
    # Medians of the ratios of each round, not ratios of medians: what slows
    # the machine for a while slows both sides of a round.
    ratio_to_stock: float | None = None
    ratio_to_stock_spread: RatioSpread | None = None
    share_of_limit: float | None = None
    limit_threads: Count | None = None
    instructions_per_folio: Count | None = None
    # The copy's part of these. It is measured with the engine "cpu", and holds for
    # all rows in which the CPU copies.
    copy_instructions: Count | None = None
    # How long folios were unmapped: medians of rounds.
    unmapped_ns: Unmapped | None = None
    touch: Touch | None = None

    cost: Cost = Cost()
    latency: Latency = Latency()
    demotion: Demotion = Demotion()
    promotion: Promotion = Promotion()
    tiers: Tiers = Tiers()
    compaction: Compaction = Compaction()
    scale: Scale = Scale()
    copy: Copy = Copy()


# By the name of a benchmark, which is that of the part, too.
PARTS: dict[str, type[msgspec.Struct]] = {
    part.__name__.lower(): part
    for part in (Cost, Latency, Demotion, Promotion, Tiers, Compaction, Scale, Copy)
}


class Check(msgspec.Struct, kw_only=True, frozen=True):
    """Something that has to hold, and whether it does."""

    name: str
    ok: bool
    measured: float
    wanted: Annotated[str, about("what measured was compared with")]
    detail: str


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
    """The machine of the run."""

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
        float | None, about("share of the host's CPU time that others took meanwhile")
    ] = None


Setting = str | int | bool | None


class Result(msgspec.Struct, kw_only=True, frozen=True):
    """A whole result file."""

    schema: Literal["pageferry/result"] = "pageferry/result"
    schema_version: Literal[2] = 2
    command: list[str]
    kernel: Kernel
    machine: Machine
    rows: list[Row]
    # The kernel without our patches, where the run compared two.
    stock_kernel: Kernel | None = None
    # As the program in bench/ found and used them.
    settings: dict[str, Setting] = {}
    created: str | None = None
    pageferry_version: str | None = None
    elapsed_ns: Count | None = None
    # Results of --check.
    checks: list[Check] | None = None
    # Figures of other people's machines, only when asked for.
    published: list[dict[str, Any]] | None = None


def as_builtins(result: Result) -> dict[str, Any]:
    """Give the document as json.dumps() takes it."""
    document: dict[str, Any] = msgspec.to_builtins(result)
    for name in ("published", "checks"):
        if document[name] is None:
            del document[name]
    for row in document["rows"]:
        for name in PARTS.keys() - {row["bench"]}:
            del row[name]
    return document


def encode(result: Result) -> str:
    """Write the document as text, indented and with a newline at its end."""
    plain = msgspec.json.encode(as_builtins(result))
    return msgspec.json.format(plain, indent=2).decode() + "\n"


def _from_version_1(row: object) -> object:
    """Move into a part what lay beside the rest of a row in version 1."""
    if not isinstance(row, dict) or row.get("bench") not in list(PARTS):
        return row
    own = PARTS[row["bench"]].__struct_fields__
    part = {key: row[key] for key in own if key in row}
    return {**{k: row[k] for k in row if k not in part}, row["bench"]: part}


def decode(text: str | bytes, source: str | Path = "result") -> Result:
    """Read a document strictly, and say which value is wrong. Also of version 1."""
    try:
        document = msgspec.json.decode(text)
        if isinstance(document, dict) and document.get("schema_version") == 1:
            rows = document.get("rows")
            if isinstance(rows, list):
                rows = [_from_version_1(row) for row in rows]
            document |= {"schema_version": 2, "rows": rows}
        return msgspec.convert(document, Result)
    except msgspec.DecodeError as error:
        raise PageferryError(
            "not a pageferry result", value=source, reason=str(error)
        ) from error


def json_schema() -> str:
    """Generate the JSON Schema that is kept in docs/reference."""
    schema = msgspec.json.schema(Result)
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}
    plain = msgspec.json.encode(schema, order="deterministic")
    text = msgspec.json.format(plain, indent=2).decode() + "\n"
    # Before version 3.13, Python keeps the indentation of docstrings.
    return text.replace("\\n    ", "\\n")
