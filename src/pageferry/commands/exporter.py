# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry exporter`."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.commands import ABOUT
from pageferry.errors import PageferryError, unsupported, usage_error
from pageferry.sysfs.files import Files
from pageferry.units import parse_seconds
from pageferry.watch.follower import NOT_ASKED, wait

if TYPE_CHECKING:
    from pageferry.cli import Subparsers
    from pageferry.watch.metrics import Migrations

DESCRIPTION = """\
Give the counters of migration to Prometheus: over HTTP, or as a file for the
textfile collector of node_exporter. Any Linux has counters of the system and of
nodes, and for root those by reason. Only pageferry's kernel has engines, times
and DMA channels. Runs until you stop it."""

EPILOG = """\
examples:
  pageferry exporter
  pageferry exporter --listen 0.0.0.0:9478
  pageferry exporter --textfile /var/lib/prometheus/node-exporter/pageferry.prom
  pageferry exporter --once
"""
_ADDRESS = "127.0.0.1:9478"
_SERVING_S = 60.0


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "exporter",
        help=ABOUT["exporter"],
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    where = parser.add_mutually_exclusive_group()
    where.add_argument(
        "--listen",
        metavar="ADDRESS",
        default=_ADDRESS,
        help="host and port of http://ADDRESS/metrics (default: %(default)s)",
    )
    where.add_argument(
        "--textfile", metavar="FILE", type=Path, help="write a file instead"
    )
    where.add_argument(
        "--once", action="store_true", help="print all metrics but pageferry_reason_*"
    )
    parser.add_argument(
        "--every", metavar="TIME", default="15s", help="of --textfile (default: 15s)"
    )
    parser.add_argument(
        "--no-trace",
        action="store_true",
        help="no metrics by reason, and no cost of the kernel's trace",
    )
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Serve the metrics until a signal."""
    every_s = parse_seconds(args.every)
    if every_s < 1:
        raise usage_error("--every is too short", args.every, "at least 1s")
    host, port = _address(args.listen)
    try:
        from pageferry.watch.metrics import Migrations
    except ImportError as error:
        raise unsupported(
            "the library prometheus_client is not installed",
            hint="apt-get install python3-prometheus-client",
        ) from error
    # With --once there is no time in which the trace could see anything.
    metrics = Migrations(Files(), trace=not (args.no_trace or args.once))
    try:
        if args.once:
            _print(metrics)
        elif args.textfile is not None:
            _write(metrics, args.textfile, every_s)
        else:
            _serve(metrics, host, port)
    finally:
        metrics.close()
    return 0


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    if not (port.isascii() and port.isdecimal() and int(port) < 1 << 16):
        raise usage_error("not an address to listen on", text, _ADDRESS)
    return host.strip("[]") or "127.0.0.1", int(port)


def _print(metrics: Migrations) -> None:
    from prometheus_client import CollectorRegistry, generate_latest

    registry = CollectorRegistry()
    registry.register(metrics)
    output.answer(generate_latest(registry).decode().rstrip("\n"))


def _write(metrics: Migrations, path: Path, every_s: float) -> None:
    """Replace the file after each interval; a reader never sees half of it."""
    from prometheus_client import CollectorRegistry, write_to_textfile

    registry = CollectorRegistry()
    registry.register(metrics)
    _talk(metrics, str(path))
    said = ""
    while True:
        try:
            write_to_textfile(str(path), registry)
            said = ""
        except (OSError, PageferryError) as error:
            # A disk may be full for a while, and an engine may be unloaded.
            text = error.line() if isinstance(error, PageferryError) else str(error)
            if text != said:
                output.warn(f"cannot write {path}: {text}")
            said = text
        wait(every_s, metrics.read_trace)


def _serve(metrics: Migrations, host: str, port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server

    registry = CollectorRegistry()
    registry.register(metrics)
    try:
        start_http_server(port, host, registry)
    except OSError as error:
        raise usage_error(
            f"cannot listen: {error.strerror}", f"{host}:{port}", "another port"
        ) from error
    _talk(metrics, f"http://{host}:{port}/metrics")
    while True:
        wait(_SERVING_S, metrics.read_trace)


def _talk(metrics: Migrations, place: str) -> None:
    output.talk(f"metrics: {place}")
    if metrics.no_trace not in (None, NOT_ASKED):
        output.warn(f"no metrics by reason: {metrics.no_trace}")
