# SPDX-License-Identifier: GPL-2.0-only
"""Measurements that the benchmark tests share."""

from __future__ import annotations

from pathlib import Path

from pageferry.bench.move_pages.spec import Measurement
from pageferry.bench.spec import Benchmark
from pageferry.kernel.arch import X86_64
from pageferry.kernel.build import BuiltKernel
from pageferry.report.tables import render
from pageferry.results.schema import Kernel, Machine, Result, Row

MIB = 1 << 20


def measurement(
    engine: str,
    elapsed_ns: int,
    *,
    number: int = 1,
    threads: int = 1,
    channels: int = 0,
    folio_bytes: int = 65536,
    busy: bool = False,
    split: int | None = 0,
    engine_bytes: int | None = None,
) -> Measurement:
    """Make one measurement of 64 MiB."""
    return Measurement(
        engine=engine,
        threads=threads,
        channels=channels,
        folio_bytes=folio_bytes,
        busy=busy,
        round=number,
        moved_bytes=64 * MIB,
        elapsed_ns=elapsed_ns,
        split_folios=split,
        engine_bytes=engine_bytes,
        verified=True,
    )


def built(folder: Path) -> BuiltKernel:
    """Describe a kernel that was never built."""
    return BuiltKernel(
        image=folder / "bzImage",
        build_dir=folder,
        modules=folder,
        release="6.12.117-pageferry",
        base="6.12",
        vanilla=False,
        configs=("vm",),
        cached=True,
        arch=X86_64,
    )


def page(bench: Benchmark, shown: Result) -> str:
    """Return the text that people read of a result."""
    text = render(shown, bench.show(shown))
    if shown.published and bench.show_published is not None:
        text += "\n\n" + bench.show_published()
    return text


def result(rows: list[Row]) -> Result:
    """Wrap rows into a result with fixed texts."""
    return Result(
        command=["pageferry", "bench", "move-pages", "--vm"],
        kernel=Kernel(
            release="6.12.117-pageferry",
            version="#1 SMP",
            base="6.12",
            vanilla=False,
            config_sha256="ab" * 32,
        ),
        machine=Machine(
            where="vm",
            cpu_model="QEMU TCG CPU version 2.5+",
            cpus=2,
            nodes="0-1",
            accel="tcg",
            topology="two-node",
        ),
        rows=rows,
        settings={"from_node": 0, "to_node": 1},
        created="2026-11-21T22:00:00Z",
        pageferry_version="0.1.0",
        elapsed_ns=12345,
    )
