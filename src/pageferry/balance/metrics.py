# SPDX-License-Identifier: GPL-2.0-only
"""The figures of the balancer as OpenMetrics text."""

from __future__ import annotations

import contextlib
import os
import tempfile
import threading
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from pageferry.errors import usage_error
from pageferry.interleave.weights import Weights

CONTENT_TYPE = "application/openmetrics-text; version=1.0.0; charset=utf-8"


@dataclass
class Figures:
    """The figures of one sample, and totals."""

    bandwidth: Mapping[int, float]
    use: Mapping[int, float] = field(default_factory=dict)
    weights: Weights | None = None
    processes: int = 0
    memory_bytes: int = 0
    # Number of changes by kind.
    changes: Counter[str] = field(default_factory=Counter)
    moved_bytes: int = 0
    gain: float = 0.0
    failures: int = 0


def render(found: Figures) -> str:
    """Format all figures."""
    weights = dict(found.weights.pairs) if found.weights is not None else {}
    nodes = sorted(found.bandwidth)
    lines = [
        *_family(
            "node_bandwidth_bytes_per_second",
            "gauge",
            "Bandwidth of a node.",
            {f'node="{node}"': found.bandwidth[node] for node in nodes},
        ),
        *_family(
            "node_use_bytes_per_second",
            "gauge",
            "Bandwidth in use on a node.",
            {f'node="{node}"': found.use.get(node, 0.0) for node in nodes},
        ),
        *_family(
            "node_weight",
            "gauge",
            "Weight of a node for the memory of the configured processes.",
            {f'node="{node}"': weights.get(node, 0) for node in nodes},
        ),
        *_family("processes", "gauge", "Running processes.", {"": found.processes}),
        *_family("memory_bytes", "gauge", "Their memory.", {"": found.memory_bytes}),
        *_family(
            "gain_ratio",
            "gauge",
            "Expected gain of the last change, 0.33 for 33%.",
            {"": round(found.gain, 6)},
        ),
        *_family(
            "changes",
            "counter",
            "Changes of weights.",
            {
                f'kind="{kind}"': found.changes[kind]
                for kind in ("spread", "change", "home")
            },
        ),
        *_family("moved_bytes", "counter", "Bytes moved.", {"": found.moved_bytes}),
        *_family("failures", "counter", "Changes that failed.", {"": found.failures}),
        "# EOF",
    ]
    return "\n".join(lines) + "\n"


def _family(name: str, kind: str, about: str, values: Mapping[str, float]) -> list[str]:
    full = f"pageferry_balance_{name}"
    sample = f"{full}_total" if kind == "counter" else full
    lines = [f"# TYPE {full} {kind}", f"# HELP {full} {about}"]
    for labels, value in values.items():
        braces = f"{{{labels}}}" if labels else ""
        lines.append(
            f"{sample}{braces} {value:g}"
            if value < 1e6
            else f"{sample}{braces} {value:.0f}"
        )
    return lines


def write(path: Path, text: str) -> None:
    """Replace a file atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as stream:
            stream.write(text)
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        with contextlib.suppress(OSError):
            Path(name).unlink()
        raise


class Listener:
    """Answers GET /metrics, from a thread of its own."""

    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        if not port.isdecimal():
            raise usage_error("not an address to listen on", address, "127.0.0.1:9477")
        self.text = "# EOF\n"
        listener = self

        class Handler(BaseHTTPRequestHandler):
            """One request."""

            def do_GET(self) -> None:
                """Send the figures."""
                body = listener.text.encode()
                found = self.path in ("/", "/metrics")
                self.send_response(200 if found else 404)
                self.send_header("Content-Type", CONTENT_TYPE)
                self.send_header("Content-Length", str(len(body) if found else 0))
                self.end_headers()
                if found:
                    self.wfile.write(body)

            def log_message(self, *_: object) -> None:
                """Log no requests: the journal is for decisions."""

        try:
            self.server = ThreadingHTTPServer((host or "127.0.0.1", int(port)), Handler)
        except OSError as error:
            raise usage_error(
                f"cannot listen: {error.strerror}", address, "another port"
            ) from error
        self.server.daemon_threads = True
        serve = self.server.serve_forever
        threading.Thread(target=serve, args=(0.05,), daemon=True).start()

    @property
    def port(self) -> int:
        """Return the port; the kernel chooses it if the address has port 0."""
        return int(self.server.server_address[1])

    def close(self) -> None:
        """Stop listening."""
        self.server.shutdown()
        self.server.server_close()
