# SPDX-License-Identifier: GPL-2.0-only
"""What the programs in bench/ print: one JSON object per line, strictly read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from pageferry.errors import ExitCode, PageferryError


class Environment(msgspec.Struct, tag_field="type", tag="environment", kw_only=True):
    """The first line: where the program runs, and what it found there."""

    bench: str
    release: str
    version: str
    nodes: str = ""
    cpus: int = 1
    cpu_model: str = "unknown"
    from_node: int = 0
    to_node: int = 1
    caller_cpu: int = 0
    page_bytes: int = 4096
    limit_copy: str | None = None
    # What it was set to meanwhile, if it was.
    max_unmapped_us: int | None = None
    engine_found: str | None = None
    available_engines: str | None = None
    reasons_found: str | None = None
    min_batch_bytes: str | None = None
    mtcopy_max_threads_found: str | None = None
    mtcopy_min_thread_bytes: str | None = None
    dmasim_bandwidth_mbps: str | None = None
    dmasim_latency_us: str | None = None
    max_unmapped_us_found: str | None = None
    max_batch_pages_found: str | None = None
    max_windows_found: str | None = None
    streaming_found: str | None = None
    pause_us: int | None = None
    skip_windows: int | None = None
    numa_balancing_found: str | None = None
    khugepaged_defrag_found: str | None = None
    ksm_run_found: str | None = None
    thp_enabled_found: str | None = None
    # Of `bench demotion` and `bench promotion`. Null is what this kernel lacks.
    memory_tiers: str | None = None
    demotion_enabled_found: str | None = None
    lru_gen_found: str | None = None
    psi: bool | None = None
    scan_delay_ms_found: str | None = None
    scan_period_min_ms_found: str | None = None
    scan_period_max_ms_found: str | None = None
    scan_size_mb_found: str | None = None
    hot_threshold_ms_found: str | None = None
    promote_rate_limit_mbps_found: str | None = None
    # Of `bench compaction`: what was mapped, and half of it freed again.
    compaction_proactiveness_found: str | None = None
    percpu_pagelist_high_fraction_found: str | None = None
    total_bytes: int | None = None


class Measurement(msgspec.Struct, tag_field="type", tag="measurement", kw_only=True):
    """One call of move_pages(2), or one memcpy of as much."""

    engine: str
    threads: int
    channels: int = 0
    folio_bytes: int
    busy: bool
    round: int
    moved_bytes: int
    elapsed_ns: int
    split_folios: int | None
    engine_bytes: int | None
    verified: bool
    hog_iterations: int = 0


class Cost(msgspec.Struct, tag_field="type", tag="cost", kw_only=True):
    """Several passes over one list of folios, there and back."""

    # Who moved them, and how many in each pass: not of move_pages(2), which
    # moves all of its list.
    path: str | None = None
    pass_folios: list[int] | None = None

    engine: str
    folio_bytes: int
    folios: int
    pass_ns: list[int]
    # What base pages were: see bench/common/pages.c.
    pages: str | None = None
    copy_instructions: int | None
    engine_bytes: int | None
    verified: bool
    # Of sizes in between, whose folios stock Linux splits: after all passes, of
    # which the first is the first move of fresh memory.
    split_folios: int | None = None
    nr_anon_partially_mapped: int | None = None
    split: int | None = None
    split_deferred: int | None = None


class Latency(msgspec.Struct, tag_field="type", tag="latency", kw_only=True):
    """One call of move_pages(2), and how long folios were out of reach."""

    case: int
    engine: str
    threads: int
    channels: int = 0
    folio_bytes: int
    moved_bytes: int
    round: int
    elapsed_ns: int
    # Without an engine there are none.
    batch_cap_pages: int | None = None
    max_windows: int | None = None
    streaming: bool | None = None
    max_unmapped_us: int | None = None
    default_limit: bool | None = None
    channel_mbps: int | None = None
    cpu_share: bool | None = None
    split_folios: int | None = None
    engine_bytes: int | None = None
    first_ns: int | None = None
    # Not on a kernel without histograms.
    windows: int | None = None
    over_limit_folios: int | None = None
    unmapped_folios: int | None = None
    unmapped_sum_ns: int | None = None
    unmapped_max_ns: int | None = None
    unmapped_hist: list[int] | None = None
    waited_threads: int | None = None
    waited_sum_ns: int | None = None
    waited_max_ns: int | None = None
    waited_hist: list[int] | None = None
    # Only where memory was touched.
    touch: str | None = None
    touches: int = 0
    touch_quiet_ns: int = 0
    touch_threshold_ns: int = 0
    touch_slow: int = 0
    touch_slept: int = 0
    touch_slowest_ns: int = 0
    touch_lost_ns: int = 0
    touch_slept_ns: int = 0
    touch_hist: list[int] | None = None
    # Only where channels were slowed down.
    slow_percent: int | None = None
    slow_factor: int | None = None
    slow_seen: bool = False
    slow_at_folios: int = 0
    slow_skipped_windows: int = 0
    verified: bool


class Calls(msgspec.Struct, tag_field="type", tag="calls", kw_only=True):
    """Memory that moved in calls of move_pages(2) of a certain length."""

    engine: str
    threads: int
    channels: int = 0
    method: str
    folio_bytes: int
    folios_per_call: int
    round: int
    moved_bytes: int
    elapsed_ns: int
    engine_bytes: int | None = None
    verified: bool


class Tiering(msgspec.Struct, kw_only=True):
    """What is known of memory that the kernel moved by itself."""

    engine: str
    threads: int
    channels: int = 0
    method: str
    folio_bytes: int
    round: int
    asked_bytes: int
    moved_bytes: int
    left_bytes: int
    elapsed_ns: int
    # Not on a kernel without migrate_offload.
    engine_bytes: int | None = None
    cpu_bytes: int | None = None
    offered_folios: int | None = None
    batches: int | None = None
    split_folios: int | None = None
    verified: bool


class Demotion(Tiering, tag_field="type", tag="demotion", kw_only=True):
    """Memory that reclaim moved to a slower node."""

    complete: bool
    # Until the last page had moved; not where the kernel does not let itself be traced.
    moving_ns: int | None = None
    # Without CONFIG_PSI nobody knows.
    stall_some_us: int | None = None
    stall_full_us: int | None = None
    pgdemote_kswapd: int | None = None
    pgdemote_direct: int | None = None
    pgdemote_khugepaged: int | None = None


class Promotion(Tiering, tag_field="type", tag="promotion", kw_only=True):
    """Memory that came back while a thread touched it."""

    fast_bytes: int
    pgpromote_success: int
    waited_ns: int
    touch: str
    touches: int
    touch_quiet_ns: int
    touch_threshold_ns: int
    touch_slow: int
    touch_slept: int
    touch_slowest_ns: int
    touch_lost_ns: int
    touch_slept_ns: int
    touch_hist: list[int]


class Compaction(msgspec.Struct, tag_field="type", tag="compaction", kw_only=True):
    """Huge pages that were allocated on a fragmented node, from one CPU."""

    engine: str
    threads: int
    channels: int = 0
    busy: bool
    round: int
    # Of each simulated channel, where it follows what stock migrates.
    channel_mbps: int | None = None
    total_bytes: int
    asked: int
    allocated: int
    drained: int
    ended: str
    # So often before, with fewer than asked for.
    repeated: int = 0
    passes: int
    wall_ns: int
    # CPU time of the thread that allocated; the others are of its CPU, in ticks.
    thread_ns: int
    user_ns: int
    system_ns: int
    idle_ns: int
    steal_ns: int
    hog_iterations: int
    # Right after that, with the CPU to itself.
    alone_iterations: int = 0
    alone_ns: int = 0
    # By /proc/vmstat, of the whole machine. Null is what this kernel lacks.
    pgmigrate_success: int | None = None
    pgmigrate_fail: int | None = None
    compact_migrate_scanned: int | None = None
    compact_free_scanned: int | None = None
    compact_stall: int | None = None
    compact_fail: int | None = None
    # Not on a kernel without migrate_offload.
    engine_bytes: int | None = None
    cpu_bytes: int | None = None
    offered_folios: int | None = None
    batches: int | None = None
    verified: bool


class Skipped(msgspec.Struct, tag_field="type", tag="skipped", kw_only=True):
    """A folio size that this kernel does not have."""

    folio_bytes: int
    reason: str


class Failure(msgspec.Struct, tag_field="type", tag="error", kw_only=True):
    """The program gave up, and with which exit code."""

    exit: int
    message: str


class Done(msgspec.Struct, tag_field="type", tag="done", kw_only=True):
    """The last line: everything that was asked for has been measured."""

    rounds: int = 0
    passes: int = 0


# What counts as one step of a run, and belongs to one of its rounds.
Timed = Measurement | Latency | Calls | Demotion | Promotion | Compaction
Line = Environment | Timed | Cost | Skipped | Failure | Done

_DECODER: msgspec.json.Decoder[Line] = msgspec.json.Decoder(Line)
_START = '{"type": "'


def parse_line(text: str) -> Line | None:
    """Read one line; None for one that the program did not write.

    On a serial console the kernel and the firmware talk as well.
    """
    start = text.find(_START)
    if start < 0:
        return None
    try:
        return _DECODER.decode(text[start:].strip())
    except msgspec.DecodeError as error:
        raise PageferryError(
            "the benchmark program printed something unexpected",
            value=text.strip()[:200],
            reason=str(error),
        ) from error


def complete(lines: Iterable[Line]) -> list[Line]:
    """Pass on all lines of a run that reached its end, or raise its error."""
    seen = list(lines)
    for line in seen:
        if isinstance(line, Failure):
            raise PageferryError(line.message, code=_exit_code(line.exit))
    if not any(isinstance(line, Done) for line in seen):
        raise PageferryError(
            "the benchmark program ended before it was done",
            code=ExitCode.NOT_STARTED if not seen else ExitCode.FAILED,
        )
    return seen


def _exit_code(number: int) -> ExitCode:
    try:
        return ExitCode(number)
    except ValueError:
        return ExitCode.FAILED


def settings(environment: Environment) -> dict[str, str | int | bool | None]:
    """Give everything the environment line says that is a setting."""
    fields: dict[str, Any] = msgspec.to_builtins(environment)
    dropped = {"type", "bench", "release", "version", "nodes", "cpus", "cpu_model"}
    return {key: value for key, value in fields.items() if key not in dropped}
