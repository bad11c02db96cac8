# SPDX-License-Identifier: GPL-2.0-only
"""Short runs of `bench scale`: it verifies, and finds no growth."""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry.cli import main
from pageferry.kernel.build import BuiltKernel
from pageferry.results.schema import Row, decode

pytestmark = pytest.mark.vm

MIB = 1 << 20
ENGINES = ("stock", "off", "mtcopy", "dcbm")
SMALL = """\
description = "nodes that hold half of the list"
cpus = 2
[[node]]
memory = "512M"
cpus = "0"
[[node]]
memory = "512M"
cpus = "1"
"""


@pytest.fixture(scope="module")
def rows(
    kernel_vm: BuiltKernel,
    kernel_vanilla: BuiltKernel,
    tmp_path_factory: pytest.TempPathFactory,
) -> list[Row]:
    """One quick run of all parts and engines, which passes the check."""
    path = tmp_path_factory.mktemp("scale") / "result.json"
    argv = ["bench", "scale", "--quick", "--check", "--output", str(path)]
    assert main(argv) == 0
    result = decode(path.read_bytes())
    assert result.kernel.release == kernel_vm.release
    assert result.stock_kernel is not None
    assert result.stock_kernel.release == kernel_vanilla.release
    assert result.machine.cpus == 8
    return result.rows


def test_every_part_is_verified_with_every_engine(rows: list[Row]) -> None:
    assert all(row.verified for row in rows)
    for engine in ENGINES:
        parts = [row.scale.part for row in rows if row.engine == engine]
        assert parts == ["sizes"] * 4 + ["movers"] * 4 + ["life"]
    # The vanilla kernel takes about 6,500, and some more of eight CPUs.
    stock = [r.instructions_per_folio for r in rows if r.engine == "stock"]
    assert all(4_000 < count < 100_000 for count in stock if count is not None)


def test_engines_copy_in_all_lists(rows: list[Row]) -> None:
    for row in rows:
        if row.engine in ("mtcopy", "dcbm") and row.scale.part in ("sizes", "life"):
            assert row.engine_bytes


def test_memory_in_use_is_that_of_the_machine(rows: list[Row]) -> None:
    lives = [row for row in rows if row.scale.part == "life"]
    for row in lives:
        used, slab = row.scale.used_bytes, row.scale.slab_bytes
        assert used is not None and slab is not None
        assert 20 * MIB < used.before < 2048 * MIB
        assert MIB < slab.before < used.before
        # Statistics of the kernel for `--config profile`.
        assert row.scale.pool_objects is None


def test_a_list_may_exceed_a_node(kernel_vm: BuiltKernel, tmp_path: Path) -> None:
    machine, path = tmp_path / "small.toml", tmp_path / "result.json"
    machine.write_text(SMALL)
    argv = ["bench", "scale", "--topology", str(machine), "--parts", "sizes"]
    argv += ["--sizes", "512M", "--engines", "off", "--output", str(path)]
    assert main(argv) == 0
    one, many = decode(path.read_bytes()).rows
    for row in (one, many):
        assert row.verified
        assert row.moved_bytes == 512 * MIB
        assert row.scale.region_bytes == 256 * MIB
    assert (one.scale.call_pages, many.scale.call_pages) == (0, 256)
