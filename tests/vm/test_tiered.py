# SPDX-License-Identifier: GPL-2.0-only
"""A destination without CPUs, as tiered memory has it."""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import decode

pytestmark = pytest.mark.vm


def test_mtcopy_finds_helpers_for_a_node_without_cpus(
    kernel_vm: BuiltKernel, tmp_path: Path
) -> None:
    output = tmp_path / "result.json"
    code = main(
        [
            *("bench", "move-pages", "--vm", "--topology", "tiered", "--no-limit"),
            *("--engines", "stock,mtcopy", "--threads", "2", "--sizes", "2M"),
            *("--total", "32M", "--rounds", "2", "--output", str(output)),
        ]
    )
    assert code == 0
    rows = {row.engine: row for row in decode(output.read_bytes()).rows}
    assert rows["mtcopy"].verified
    # With declined batches the counter would be zero, as the CPU copies those.
    assert rows["mtcopy"].engine_bytes
