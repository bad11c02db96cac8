# SPDX-License-Identifier: GPL-2.0-only
"""No more than two files use each other: a reader can begin at the bottom."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers.circles import large_circle, uses
from helpers.sources import TREE, found

ROOT = Path(__file__).resolve().parents[2]
ROOMS = (
    *(TREE / "mm" / name for name in ("migrate_offload", "migrate_run")),
    *(
        TREE / "drivers/migrate_offload" / name
        for name in ("dcbm", "mtcopy", "test_engine", "test_notifier")
    ),
    TREE / "drivers/dma/dmasim",
    ROOT / "bench/common",
)


@pytest.mark.parametrize("folder", ROOMS, ids=lambda path: path.name)
def test_no_circle_of_more_than_two(folder: Path) -> None:
    # Files of unit tests are another module.
    files = [path for path in found(folder, "*.c") if "test" not in path.name]
    graph = uses(files)
    assert any(graph.values())
    assert large_circle(graph) == set()


def test_a_circle_is_found(tmp_path: Path) -> None:
    for name, other in (("a", "b"), ("b", "c"), ("c", "a")):
        (tmp_path / f"{name}.c").write_text(
            f"/* {name}() is not a use */\nint {name}(void)\n{{\n\treturn {other}();\n}}\n"
        )
    files = sorted(tmp_path.glob("*.c"))
    assert uses(files) == {"a.c": {"b.c"}, "b.c": {"c.c"}, "c.c": {"a.c"}}
    assert large_circle(uses(files)) == {"a.c", "b.c", "c.c"}
    (tmp_path / "c.c").write_text("int c(void)\n{\n\treturn b();\n}\n")
    assert large_circle(uses(files)) == set()
