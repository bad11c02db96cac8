# SPDX-License-Identifier: GPL-2.0-only
"""The dashboard and the alerts against Prometheus itself, which scrapes the exporter."""

from __future__ import annotations

import json
import math
import re
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest, start_http_server

from helpers import fake_watch as fake
from helpers import prometheus
from helpers.prometheus import Server, program
from pageferry import proc
from pageferry.sysfs.files import Files
from pageferry.watch.metrics import Migrations

ROOT = Path(__file__).resolve().parents[2]
EXAMPLES = ROOT / "packaging/examples/prometheus"
ALERTS = EXAMPLES / "alerts.yml"
DASHBOARD = json.loads((EXAMPLES / "dashboard.json").read_text())
TARGETS = [
    (panel["title"], target)
    for panel in DASHBOARD["panels"]
    for target in panel["targets"]
]
# A rate needs two samples; the later ones keep a busy machine from failing the test.
SCRAPES = 6
WINDOW = "30s"


def kernel(root: Path, step: int) -> None:
    """Fake a kernel whose counters grow with each step."""
    stats = f"{fake.OFFLOAD}/stats/reasons/demotion"
    moved = 1000 * step
    vmstat = f"pgpromote_success {moved}\npgdemote_kswapd {moved}\n"
    fake.write(
        root,
        {
            "proc/vmstat": f"pgmigrate_success {moved}\npgmigrate_fail {step}\n",
            "sys/devices/system/node/node0/vmstat": vmstat,
            "sys/devices/system/node/node2/vmstat": vmstat,
            f"{stats}/engine_bytes": f"{moved * 4096}",
            f"{stats}/cpu_bytes": f"{moved}",
            # p50 and p99 lie in different buckets.
            f"{stats}/unmapped_hist": f"1024 {90 * step}\n262144 {10 * step}",
            f"{stats}/waited_hist": f"65536 {step}",
            f"{stats}/waited_max_ns": "70000",
            "sys/module/dcbm/channels/dma0chan0/bytes": f"{moved * 4096}",
        },
    )
    fake.say(root, fake.migrated("a-1", "demotion", 900, 2))


@pytest.fixture(scope="module")
def exporter(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    """The exporter over HTTP, on a fake kernel: its root and its port."""
    root = tmp_path_factory.mktemp("kernel")
    fake.stock(root)
    fake.ours(root)
    kernel(root, 1)
    registry = CollectorRegistry()
    metrics = Migrations(Files(root))
    registry.register(metrics)
    (root / "metrics").write_bytes(generate_latest(registry))
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        yield root, server.server_port
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        metrics.close()


@pytest.fixture(scope="module")
def scraped(
    exporter: tuple[Path, int], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Server]:
    """A Prometheus that has seen the counters grow."""
    root, port = exporter
    folder = tmp_path_factory.mktemp("prometheus")
    with prometheus.server(folder, f"127.0.0.1:{port}", ALERTS) as found:
        end = time.monotonic() + 60
        for step in range(2, 1000):
            kernel(root, step)
            time.sleep(0.5)
            seen = found.query("count_over_time(up[1m])")
            if sum(seen.values()) >= SCRAPES:
                break
            assert time.monotonic() < end, "Prometheus does not scrape"
        yield found


def as_grafana_asks(query: str, instance: str) -> str:
    """Replace variables as Grafana does for the choice "All"."""
    query = query.replace("$__rate_interval", WINDOW)
    return query.replace("$instance", f"({re.escape(instance)})".replace("\\", "\\\\"))


def instances(found: Server) -> list[str]:
    """Ask for the values of the variable that chooses machines."""
    (variable,) = (
        one for one in DASHBOARD["templating"]["list"] if one["name"] == "instance"
    )
    asked = re.fullmatch(r"label_values\((\w+), (\w+)\)", variable["query"])
    assert asked is not None
    path = f"label/{asked[2]}/values"
    values: list[str] = found.get(path, **{"match[]": asked[1]})
    return values


@pytest.mark.parametrize(
    ("title", "target"), TARGETS, ids=[f"{t} {q['refId']}" for t, q in TARGETS]
)
def test_each_panel_shows_data(
    scraped: Server, title: str, target: dict[str, Any]
) -> None:
    (instance,) = instances(scraped)
    found = scraped.query(as_grafana_asks(target["expr"], instance))
    assert found, title
    for labels, value in found.items():
        assert math.isfinite(value), (title, labels)
        # The legend names labels that the answer has.
        legend = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert legend <= {name for name, _ in labels}, title
    # A line at zero would hide a label that never matches.
    assert max(found.values()) > 0, title


def test_the_units_of_panels_fit_their_metrics() -> None:
    for panel in DASHBOARD["panels"]:
        unit = panel["fieldConfig"]["defaults"]["unit"]
        asked = " ".join(target["expr"] for target in panel["targets"])
        for name in re.findall(r"pageferry_\w+", asked):
            # Grafana has Bps for bytes in each second, and s for seconds.
            wanted = "Bps" if name.endswith("_bytes_total") else "s"
            assert wanted == "Bps" or "_seconds" in name, name
            assert unit == wanted, panel["title"]


def test_the_figures_of_panels_are_right(scraped: Server) -> None:
    rate = f"rate(pageferry_migrated_bytes_total[{WINDOW}])"
    (all_reasons,) = scraped.query(rate).values()
    demoted = f"sum by (reason) (rate(pageferry_reason_migrated_bytes_total[{WINDOW}]))"
    ((labels, one),) = scraped.query(demoted).items()
    assert dict(labels) == {"reason": "demotion"}
    # The fake kernel moves 1000 pages in each step, and traces 900.
    assert one / all_reasons == pytest.approx(0.9, rel=0.2)
    unmapped = f"sum by (le) (rate(pageferry_unmapped_seconds_bucket[{WINDOW}]))"
    (p50,) = scraped.query(f"histogram_quantile(0.5, {unmapped})").values()
    (p99,) = scraped.query(f"histogram_quantile(0.99, {unmapped})").values()
    # Each bucket ends at four times the end of the one before: 1.024 us, 4.096 us.
    assert 1e-6 <= p50 <= 4.1e-6
    assert 250e-6 <= p99 <= 1100e-6


def test_prometheus_takes_the_rules(scraped: Server) -> None:
    end = time.monotonic() + 30
    while True:
        (group,) = scraped.get("rules")["groups"]
        health = {rule["name"]: rule["health"] for rule in group["rules"]}
        if "unknown" not in health.values():
            break
        assert time.monotonic() < end, health
        time.sleep(0.2)
    assert set(health.values()) == {"ok"}, health


def test_promtool_likes_metrics_and_rules(exporter: tuple[Path, int]) -> None:
    rules = proc.capture(
        [program("promtool"), "check", "rules", "--lint-fatal", ALERTS]
    )
    assert rules.returncode == 0, rules.stderr
    with (exporter[0] / "metrics").open() as text:
        checked = subprocess.run(
            [program("promtool"), "check", "metrics"],
            stdin=text,
            capture_output=True,
            text=True,
            check=False,
        )
    assert checked.returncode == 0, checked.stdout + checked.stderr


def test_each_alert_fires_when_it_should() -> None:
    cases = Path(__file__).with_name("alerts_test.yml")
    done = proc.capture([program("promtool"), "test", "rules", cases])
    assert done.returncode == 0, done.stdout + done.stderr
    named = set(re.findall(r"alert: (\w+)", ALERTS.read_text()))
    assert set(re.findall(r"alertname: (\w+)", cases.read_text())) == named
