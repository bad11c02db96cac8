# SPDX-License-Identifier: GPL-2.0-only
"""Debian's Prometheus, which scrapes one exporter and evaluates rules."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

_CONFIG = """\
global: {{scrape_interval: 1s, evaluation_interval: 1s}}
rule_files: ["{rules}"]
scrape_configs:
  - job_name: pageferry
    static_configs: [{{targets: ["{target}"]}}]
"""


def program(name: str) -> str:
    """Return the path of a program of Debian's package, or fail the test."""
    found = shutil.which(name)
    if found is None:
        pytest.fail(f"{name} is missing; try: apt-get install prometheus", False)
    return found


@dataclass(frozen=True)
class Server:
    """A Prometheus that runs."""

    url: str

    def get(self, path: str, **arguments: str) -> Any:  # noqa: ANN401 - any JSON
        """Ask the HTTP interface, and return the data of the answer."""
        query = urllib.parse.urlencode(arguments)
        with urllib.request.urlopen(f"{self.url}/api/v1/{path}?{query}") as answer:
            found = json.load(answer)
        assert found["status"] == "success", found
        return found["data"]

    def query(self, query: str) -> dict[tuple[tuple[str, str], ...], float]:
        """Evaluate a query now: the values by their labels."""
        found = self.get("query", query=query)["result"]
        return {
            tuple(sorted(one["metric"].items())): float(one["value"][1])
            for one in found
        }


def free_port() -> int:
    """Return a port of this machine that no program uses."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        port: int = found.getsockname()[1]
    return port


def _wait(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    end = time.monotonic() + 60
    while time.monotonic() < end and process.poll() is None:
        try:
            with urllib.request.urlopen(f"{url}/-/ready"):
                return
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.1)
    pytest.fail(f"Prometheus did not start:\n{log.read_text()}", pytrace=False)


@contextmanager
def server(folder: Path, target: str, rules: Path) -> Iterator[Server]:
    """Scrape `target` each second, with data below `folder`."""
    config, log = folder / "prometheus.yml", folder / "log"
    config.write_text(_CONFIG.format(rules=rules, target=target))
    address = f"127.0.0.1:{free_port()}"
    argv = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'data'}",
        f"--web.listen-address={address}",
    ]
    with log.open("wb") as out, subprocess.Popen(argv, stdout=out, stderr=out) as made:
        try:
            _wait(f"http://{address}", made, log)
            yield Server(f"http://{address}")
        finally:
            made.terminate()
