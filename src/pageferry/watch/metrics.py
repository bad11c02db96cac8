# SPDX-License-Identifier: GPL-2.0-only
"""All counters as metrics of Prometheus, through its own library."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from typing import TypeVar

from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from pageferry.sysfs.files import Files
from pageferry.sysfs.histogram import Histogram, bucket_end
from pageferry.sysfs.pagebits import PAGE
from pageferry.watch import sources
from pageferry.watch.events import Moves
from pageferry.watch.follower import Follower
from pageferry.watch.sources import Counters, Snapshot

Key = TypeVar("Key", str, int)

_NS = "_ns"
# The kernel's buckets are finer than a dashboard needs. Each bound is a power of two.
_BOUNDS_NS = tuple(1 << shift for shift in range(10, 31, 2))
_TIMES = {
    "unmapped_hist": ("unmapped_seconds", "Time for which a folio was unmapped."),
    "waited_hist": ("waited_seconds", "Time that a thread waited for a folio."),
}


class Migrations(Collector):
    """Reads the counters when Prometheus asks."""

    def __init__(self, files: Files, *, trace: bool = True) -> None:
        """Start the trace, if the user wants one."""
        self._files = files
        self._reasons: dict[str, Moves] = {}
        self._lost_events = 0
        # The HTTP server asks from threads of its own.
        self._lock = threading.Lock()
        self._follower = Follower(files, trace=trace)

    @property
    def no_trace(self) -> str | None:
        """Return the reason why there are no metrics by reason."""
        return self._follower.no_trace

    def close(self) -> None:
        """Stop the trace."""
        with self._lock:
            self._follower.close()

    def read_trace(self) -> bool:
        """Read a part of the trace; say whether it had any lines.

        A scrape waits for the lock, so each call reads a part only.
        """
        with self._lock:
            any_lines = self._follower.collect()
            found = self._follower.take()
            for reason, moves in found.reasons.items():
                self._reasons.setdefault(reason, Moves()).merge(moves)
            self._lost_events += found.lost_events
        return any_lines

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics."""
        self.read_trace()
        now = sources.take(self._files, cgroups=False)
        yield from _of_system(now)
        if self.no_trace is None:
            with self._lock:
                found = list(_of_trace(self._reasons, self._lost_events))
            yield from found
        if now.state is not None:
            yield from _of_offload(now)


def _counter(
    name: str, about: str, label: str, values: Mapping[Key, float]
) -> CounterMetricFamily:
    family = CounterMetricFamily(f"pageferry_{name}", about, labels=[label])
    for key, value in values.items():
        family.add_metric([str(key)], value)
    return family


def _gauge(name: str, about: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"pageferry_{name}", about, value=value)


def _of_system(now: Snapshot) -> Iterator[Metric]:
    success, fail = sources.VMSTAT
    yield CounterMetricFamily(
        "pageferry_migrated_bytes",
        "Bytes that migrated, for any reason.",
        value=now.vmstat.get(success, 0) * PAGE,
    )
    yield CounterMetricFamily(
        "pageferry_failed_bytes",
        "Bytes that did not migrate, for any reason.",
        value=now.vmstat.get(fail, 0) * PAGE,
    )
    promoted = {
        number: counters.get(sources.PROMOTED, 0) * PAGE
        for number, counters in now.nodes.items()
    }
    demoted = {
        number: sources.demoted(counters) * PAGE
        for number, counters in now.nodes.items()
    }
    about = "Bytes that were promoted to a node."
    yield _counter("node_promoted_bytes", about, "node", promoted)
    about = "Bytes that were demoted from a node."
    yield _counter("node_demoted_bytes", about, "node", demoted)


def _of_trace(reasons: Mapping[str, Moves], lost_events: int) -> Iterator[Metric]:
    """Yield totals since the exporter began."""
    moved = {k: v.moved_pages * PAGE for k, v in reasons.items()}
    failed = {k: v.failed_pages * PAGE for k, v in reasons.items()}
    calls = {k: v.calls for k, v in reasons.items()}
    about = "Bytes that migrated since the exporter began, by reason."
    yield _counter("reason_migrated_bytes", about, "reason", moved)
    about = "Bytes that did not migrate since the exporter began, by reason."
    yield _counter("reason_failed_bytes", about, "reason", failed)
    about = "Calls that migrated pages since the exporter began, by reason."
    yield _counter("reason_calls", about, "reason", calls)
    yield CounterMetricFamily(
        "pageferry_lost_events",
        "Calls that are missing in the figures by reason.",
        value=lost_events,
    )


def _of_offload(now: Snapshot) -> Iterator[Metric]:
    assert now.state is not None
    engines = GaugeMetricFamily(
        "pageferry_engine_active", "1 for the active engine.", labels=["engine"]
    )
    for engine in now.state.available_engines:
        engines.add_metric([engine], float(engine == now.state.engine))
    yield engines
    limit_s = now.state.max_unmapped_us / 1e6
    about = "Limit on the unmapped time of a folio; 0 is no limit."
    yield _gauge("max_unmapped_seconds", about, limit_s)
    about = "Folios that wait for a device which did not stop."
    yield _gauge("held_folios", about, now.held_folios)
    yield _gauge("busy_dma_channels", "DMA channels that copy now.", now.busy_channels)
    yield from _counters("offload", "reason", now.reasons)
    yield from _counters("engine", "engine", now.engines)
    yield from _counters("dma_channel", "channel", now.channels)
    for kind, (name, about) in _TIMES.items():
        family = HistogramMetricFamily(f"pageferry_{name}", about, labels=["reason"])
        for reason, kinds in now.times.items():
            if kind in kinds:
                sum_ns = now.reasons[reason].get(kind.replace("_hist", "_sum_ns"), 0)
                family.add_metric([reason], _buckets(kinds[kind]), sum_ns / 1e9)
        yield family


def _counters(
    prefix: str, label: str, found: Mapping[str, Counters]
) -> Iterator[CounterMetricFamily]:
    """Yield a family for each file of the kernel, with times in seconds."""
    names = dict.fromkeys(name for counters in found.values() for name in counters)
    for name in names:
        # The histograms have these figures, and a maximum is no counter.
        if name.startswith(("unmapped_", "waited_")):
            continue
        seconds = name.endswith(_NS)
        shown = f"{name.removesuffix(_NS)}_seconds" if seconds else name
        values = {
            key: counters[name] / (1e9 if seconds else 1)
            for key, counters in found.items()
            if name in counters
        }
        about = f"The kernel's counter {name}, by {label}."
        yield _counter(f"{prefix}_{shown}", about, label, values)


def _buckets(times: Histogram) -> list[tuple[str, float]]:
    """Count the times up to each bound, as Prometheus wants them."""
    pairs = [
        (
            str(bound / 1e9),
            float(sum(n for lower, n in times.buckets if bucket_end(lower) <= bound)),
        )
        for bound in _BOUNDS_NS
    ]
    return [*pairs, ("+Inf", float(times.count))]
