# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry exporter`, its dashboard and its alerts, on fake kernels."""

from __future__ import annotations

import gc
import json
import re
import threading
import time
import urllib.request
from pathlib import Path

import pytest
import yaml
from prometheus_client import CollectorRegistry, generate_latest, start_http_server
from prometheus_client.metrics_core import Metric
from prometheus_client.parser import text_string_to_metric_families

from helpers import fake_watch as fake
from pageferry.cli import main
from pageferry.sysfs.files import Files
from pageferry.watch.events import Moves
from pageferry.watch.metrics import Migrations

EXAMPLES = Path(__file__).resolve().parents[2] / "packaging/examples/prometheus"
DASHBOARD = json.loads((EXAMPLES / "dashboard.json").read_text())
NAME = re.compile(r"pageferry_\w+")


def samples(text: str) -> dict[tuple[str, ...], float]:
    """Parse metrics as Prometheus does: (name, label values...) and the value."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def exported(root: Path) -> dict[tuple[str, ...], float]:
    registry = CollectorRegistry()
    metrics = Migrations(Files(root))
    registry.register(metrics)
    found = samples(generate_latest(registry).decode())
    metrics.close()
    return found


def test_a_stock_kernel(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    fake.say(tmp_path, fake.migrated("a-1", "compaction", 40, 2))
    found = exported(tmp_path)
    assert found["pageferry_migrated_bytes_total",] == 100 * 4096
    assert found["pageferry_failed_bytes_total",] == 4096
    assert found["pageferry_node_promoted_bytes_total", "0"] == 5 * 4096
    assert found["pageferry_node_demoted_bytes_total", "2"] == 0
    assert found["pageferry_reason_migrated_bytes_total", "compaction"] == 40 * 4096
    assert found["pageferry_reason_failed_bytes_total", "compaction"] == 2 * 4096
    assert not any("offload" in key[0] for key in found)


def test_our_kernel(tmp_path: Path) -> None:
    fake.write(tmp_path, fake.STOCK)
    fake.ours(tmp_path)
    hist = f"{fake.OFFLOAD}/stats/reasons/demotion/unmapped_hist"
    # The last bucket of the kernel has no end.
    fake.write(tmp_path, {hist: "0 1\n1024 10\n4096 5\n1073741824 2"})
    found = exported(tmp_path)
    assert found["pageferry_engine_active", "mtcopy"] == 1
    assert found["pageferry_engine_active", "cpu"] == 0
    assert found["pageferry_offload_engine_bytes_total", "demotion"] == 4096
    assert found["pageferry_engine_engine_seconds_total", "mtcopy"] == 1e-6
    assert found["pageferry_max_unmapped_seconds",] == 0.00075
    buckets = {
        float(key[2 if key[1] == "demotion" else 1]): value
        for key, value in found.items()
        if key[0] == "pageferry_unmapped_seconds_bucket"
    }
    assert buckets[1.024e-06] == 1
    assert buckets[4.096e-06] == 11
    assert buckets[1.073741824] == 16
    assert buckets[float("inf")] == 18
    assert found["pageferry_unmapped_seconds_sum", "demotion"] == 10500 / 1e9
    # A maximum is no counter, and the trace is missing.
    assert not any("max_seconds" in key[0] or "reason_calls" in key[0] for key in found)


def test_tasks_that_came_and_went_cost_no_memory(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    metrics = Migrations(Files(tmp_path))
    for first in range(0, 2000, 500):
        tasks = range(first, first + 500)
        fake.say(tmp_path, *(fake.migrated(f"a-{n}", "demotion", 1) for n in tasks))
        metrics.read_trace()
    kept = sum(isinstance(one, Moves) for one in gc.get_objects())
    metrics.close()
    assert kept < 100


def everything(root: Path) -> dict[str, Metric]:
    """Return the families of a kernel that has all counters, by name of their samples."""
    fake.stock(root)
    fake.ours(root)
    waits = "stats/reasons/demotion/waited_"
    fake.write(root, {f"{fake.OFFLOAD}/{waits}hist": "1024 1"})
    fake.write(root, {f"{fake.OFFLOAD}/{waits}max_ns": "1100"})
    fake.say(root, fake.migrated("a-1", "compaction", 40, 2))
    registry = CollectorRegistry()
    metrics = Migrations(Files(root))
    registry.register(metrics)
    text = generate_latest(registry).decode()
    metrics.close()
    return {
        sample.name: family
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def check_query(query: str, known: dict[str, Metric]) -> None:
    """Check that metrics and labels exist, and that only counters have a rate."""
    names = NAME.findall(query)
    assert names and set(names) <= known.keys(), query
    labels = {
        label
        for name in names
        for sample in known[name].samples
        for label in sample.labels
    }
    for group in re.findall(r"by \(([^)]*)\)", query):
        # Prometheus adds the machine.
        assert set(group.split(", ")) <= labels | {"instance"}, query
    for name in re.findall(r"(?:rate|increase)\((\w+)", query):
        kind = known[name].type
        assert kind == "counter" or name.endswith("_bucket"), query
    for name in set(names) - set(re.findall(r"(?:rate|increase)\((\w+)", query)):
        assert known[name].type == "gauge", query


def test_the_dashboard_asks_for_metrics_that_exist(tmp_path: Path) -> None:
    known = everything(tmp_path)
    listed = DASHBOARD["templating"]["list"]
    variables = {one["name"] for one in listed} | {"__rate_interval"}
    (machines,) = (one["query"] for one in listed if one["name"] == "instance")
    assert set(NAME.findall(machines)) <= known.keys()
    asked = set()
    for panel in DASHBOARD["panels"]:
        assert panel["datasource"]["uid"] == "${datasource}"
        for target in panel["targets"]:
            query = target["expr"]
            check_query(query, known)
            asked |= set(NAME.findall(query))
            assert set(re.findall(r"\$(\w+)", query)) <= variables, query
            labels = set().union(
                *(
                    sample.labels
                    for n in NAME.findall(query)
                    for sample in known[n].samples
                )
            )
            legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
            assert legend <= labels | {"instance"}, target
        references = [target["refId"] for target in panel["targets"]]
        assert len(set(references)) == len(references)
    assert len(asked) > 8


def test_panels_do_not_overlap() -> None:
    cells: set[tuple[int, int]] = set()
    for panel in DASHBOARD["panels"]:
        place = panel["gridPos"]
        columns = range(place["x"], place["x"] + place["w"])
        rows = range(place["y"], place["y"] + place["h"])
        assert columns.stop <= 24 and place["w"] > 0 and place["h"] > 0
        here = {(column, row) for column in columns for row in rows}
        assert not here & cells, panel["title"]
        cells |= here
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(set(ids)) == len(ids)


def test_alerts_ask_for_metrics_that_exist(tmp_path: Path) -> None:
    known = everything(tmp_path)
    text = (EXAMPLES / "alerts.yml").read_text()
    (group,) = yaml.safe_load(text)["groups"]
    for rule in group["rules"]:
        check_query(rule["expr"], known)
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("warning", "critical")


def test_the_page_names_the_metrics(tmp_path: Path) -> None:
    page = (EXAMPLES.parents[2] / "docs/how-to/exporter.md").read_text()
    named = re.findall(r"`(pageferry_[\w*]+)`", page)
    patterns = [re.compile(name.replace("*", r"\w+")) for name in named]
    for name in everything(tmp_path):
        family = re.sub(r"_(bucket|sum|count)$", "", name)
        assert any(pattern.fullmatch(family) for pattern in patterns), name


def test_over_http(tmp_path: Path) -> None:
    fake.stock(tmp_path)
    registry = CollectorRegistry()
    metrics = Migrations(Files(tmp_path))
    registry.register(metrics)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    url = f"http://127.0.0.1:{server.server_port}/metrics"
    try:
        for moved in (40, 100):
            fake.say(tmp_path, fake.migrated("a-1", "compaction", moved))
            metrics.read_trace()
        with urllib.request.urlopen(url) as answer:
            found = samples(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        metrics.close()
    assert found["pageferry_reason_migrated_bytes_total", "compaction"] == 140 * 4096


def test_a_textfile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake.stock(tmp_path)
    path = tmp_path / "pageferry.prom"
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    written = threading.Event()

    def sleep(_: float) -> None:
        written.set()
        raise KeyboardInterrupt

    monkeypatch.setattr(time, "sleep", sleep)
    assert main(["exporter", "--textfile", str(path)]) == 130
    assert written.is_set()
    assert samples(path.read_text())["pageferry_migrated_bytes_total",] == 409600
    left = [name.name for name in tmp_path.iterdir() if "prom" in name.name]
    assert left == ["pageferry.prom"]


@pytest.mark.parametrize("option", ["--once", "--no-trace"])
def test_without_a_trace(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    option: str,
) -> None:
    fake.stock(tmp_path)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    enable = tmp_path / fake.INSTANCE / "events/migrate/mm_migrate_pages/enable"
    assert main(["exporter", "--once", option]) == 0
    assert enable.read_text() == "0\n"
    assert "pageferry_reason" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        (["--listen", "here"], "not an address"),
        (["--listen", "127.0.0.1:99999"], "not an address"),
        (["--every", "1ms"], "too short"),
        (["--once", "--textfile", "x"], "not allowed with"),
    ],
)
def test_bad_usage(
    argv: list[str], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["exporter", *argv]) == 2
    assert named in capsys.readouterr().err


def test_a_port_in_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    fake.write(tmp_path, fake.STOCK)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    server, thread = start_http_server(0, "127.0.0.1", CollectorRegistry())
    try:
        argv = ["exporter", "--listen", f"127.0.0.1:{server.server_port}"]
        assert main(argv) == 2
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    assert "cannot listen: Address already in use" in capsys.readouterr().err
