# SPDX-License-Identifier: GPL-2.0-only
"""The result schema, its statistics and its store."""

from __future__ import annotations

import json
import re
from pathlib import Path
from statistics import median

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.bench_data import measurement, page, result
from helpers.golden_files import check_golden
from helpers.sources import found as files_found
from pageferry.bench.move_pages.spec import MovePlan, make_rows
from pageferry.bench.spec import load
from pageferry.errors import PageferryError
from pageferry.results import store
from pageferry.results.schema import (
    PARTS,
    Result,
    Row,
    as_builtins,
    decode,
    encode,
    json_schema,
)
from pageferry.results.stats import round_ratios, spread

ROOT = Path(__file__).resolve().parents[2]


def some_rows() -> list[Row]:
    plan = MovePlan(sizes=(65536,), engines=("cpu",), total_bytes=1 << 26, rounds=1)
    return make_rows(plan, [measurement("stock", 100), measurement("cpu", 50)])


def test_round_trip() -> None:
    before = result(some_rows())
    assert decode(encode(before)) == before


def test_contract_keys_are_there() -> None:
    document = json.loads(encode(result(some_rows())))
    assert document["schema"] == "pageferry/result"
    assert document["schema_version"] == 2
    assert {"command", "kernel", "machine", "rows"} <= document.keys()
    contract = {
        *("bench", "engine", "channels", "threads", "folio_bytes", "moved_bytes"),
        *("pages", "path", "rounds", "verified", "bytes_per_s", "ratio_to_stock"),
        *(
            "share_of_limit",
            "instructions_per_folio",
            "copy_instructions",
            "unmapped_ns",
            "split_folios",
            "busy",
        ),
    }
    assert contract <= document["rows"][0].keys()
    assert document["rows"][0]["bytes_per_s"].keys() == {"median", "min", "max"}
    assert document["rows"][0].keys().isdisjoint(PARTS)


@pytest.mark.parametrize("bench", PARTS)
def test_a_row_has_the_part_of_its_benchmark(bench: str) -> None:
    rows = [msgspec.structs.replace(row, bench=bench) for row in some_rows()]
    (row, _) = json.loads(encode(result(rows)))["rows"]
    assert PARTS.keys() & row.keys() == {bench}
    assert not row.keys() & row[bench].keys()
    assert decode(encode(result(rows))) == result(rows)


def test_unknown_keys_are_ignored() -> None:
    document = json.loads(encode(result(some_rows())))
    document["added_later"] = 1
    document["rows"][0]["colour"] = {"red": 1}
    assert decode(json.dumps(document)) == result(some_rows())


def test_unmapped_times_are_four_figures_at_least() -> None:
    document = json.loads(encode(result(some_rows())))
    times = {"first": 1, "mean": 2, "p99": 3, "last": 4}
    document["rows"][0]["unmapped_ns"] = times
    found = decode(json.dumps(document)).rows[0].unmapped_ns
    assert found is not None
    assert (found.first, found.mean, found.p99, found.last) == (1, 2, 3, 4)


@pytest.mark.parametrize(
    ("key", "value", "named"),
    [
        ("schema", "other/result", "schema"),
        ("schema_version", 3, "schema_version"),
        ("rows", {}, "rows"),
        ("command", "a string", "command"),
    ],
)
def test_wrong_values_are_refused(key: str, value: object, named: str) -> None:
    document = json.loads(encode(result(some_rows())))
    document[key] = value
    with pytest.raises(PageferryError, match=named):
        decode(json.dumps(document))


def test_numbers_as_strings_are_refused() -> None:
    document = json.loads(encode(result(some_rows())))
    document["rows"][0]["folio_bytes"] = "4,096"
    with pytest.raises(PageferryError, match="folio_bytes"):
        decode(json.dumps(document))


def test_no_published_key_unless_asked_for() -> None:
    assert "published" not in as_builtins(result([]))
    shown = msgspec.structs.replace(result([]), published=[{"name": "x"}])
    assert as_builtins(shown)["published"] == [{"name": "x"}]


def test_json_schema_is_current() -> None:
    check_golden(ROOT / "docs" / "reference" / "result.schema.json", json_schema())


@pytest.mark.parametrize(
    "path", files_found(ROOT / "docs" / "results", "*.json"), ids=lambda p: p.name
)
def test_files_of_both_versions_are_read_and_shown(path: Path) -> None:
    old = json.loads(path.read_bytes())
    assert old["schema_version"] in (1, 2)
    # Paths of the machine that measured begin with ~.
    assert not re.search(r'"/(?:root|home)/', path.read_text())
    found = decode(path.read_bytes(), path)
    new = json.loads(encode(found))["rows"]
    for was, row in zip(old["rows"], new, strict=True):
        everything = {**row, **row.get(row["bench"], {})}
        said = {**was, **was.get(was["bench"], {})}
        said.pop(was["bench"], None)
        said = {key: value for key, value in said.items() if value is not None}
        assert said.items() <= everything.items()
    text = page(load(found.rows[0].bench.replace("-", "_")), found)
    assert text.startswith(("Linux ", "Instructions ")) and found.kernel.release in text
    # Each row is a line of a table, next to its figure.
    for row in found.rows:
        assert row.engine.replace("limit", "memcpy (limit)") in text
        if row.instructions_per_folio is not None:
            assert f"{row.instructions_per_folio:,}" in text


def test_version_1_is_read_strictly_too() -> None:
    path = ROOT / "docs" / "results" / "compaction-dma.json"
    document = json.loads(path.read_bytes())
    assert document["schema_version"] == 1
    document["rows"][0]["allocated_pages"] = "many"
    with pytest.raises(PageferryError, match=r"compaction\.allocated_pages"):
        decode(json.dumps(document))
    damaged: list[object] = [None, {}, [1], [{"bench": ["cost"]}]]
    for rows in damaged:
        with pytest.raises(PageferryError, match="rows"):
            decode(json.dumps({**document, "rows": rows}))


def test_spread_is_whole_numbers() -> None:
    found = spread([1.4, 2.6, 10.5])
    assert (found.median, found.min, found.max) == (3, 1, 10)


positive = st.floats(min_value=1.0, max_value=1e12)


@given(st.dictionaries(st.integers(1, 50), positive, min_size=1))
def test_ratio_to_oneself_is_one(series: dict[int, float]) -> None:
    found = round_ratios(series, series)
    assert found is not None
    assert (found.min, found.median, found.max) == (1, 1, 1)


@given(st.lists(st.tuples(positive, positive), min_size=1, max_size=30))
def test_a_slow_round_does_not_change_the_ratio(
    pairs: list[tuple[float, float]],
) -> None:
    """An equal slowdown of both sides of a round leaves its ratio unchanged."""
    ours = {i: pair[0] for i, pair in enumerate(pairs)}
    base = {i: pair[1] for i, pair in enumerate(pairs)}
    found = round_ratios(ours, base)
    slowed = round_ratios(ours | {0: ours[0] / 8}, base | {0: base[0] / 8})
    assert found is not None
    assert found == slowed
    assert found.median == median(ours[i] / base[i] for i in ours)


def test_ratio_needs_a_common_round() -> None:
    assert round_ratios({1: 1.0}, {2: 1.0}) is None
    assert round_ratios({1: 1.0}, {}) is None


def test_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    created = "2026-11-21T22:00:00Z"
    first = store.save(result([]), store.default_path("cost", created))
    second = store.default_path("cost", created)
    assert first == tmp_path / "pageferry/results/2026-11-21T220000Z-cost.json".replace(
        "-11-21", "1121"
    )
    assert second != first
    assert decode(first.read_text()) == result([])
    assert [path.name for path in first.parent.iterdir()] == [first.name]


def test_store_says_where_it_cannot_write(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(PageferryError) as caught:
        store.save(result([]), tmp_path / "file" / "result.json")
    assert str(tmp_path / "file") in caught.value.line()


def test_default_is_null_not_zero() -> None:
    assert (
        Result(
            command=[], kernel=result([]).kernel, machine=result([]).machine, rows=[]
        ).elapsed_ns
        is None
    )


def test_measured_runs_can_be_read_and_are_listed() -> None:
    folder = ROOT / "docs" / "results"
    listed = (folder / "README.md").read_text(encoding="utf-8")
    runs = sorted(folder.glob("*.json"))
    assert runs
    for run in runs:
        assert f"`{run.name}`" in listed
        result = decode(run.read_bytes())
        assert result.rows
        assert all(row.verified for row in result.rows)
        if not all(check.ok for check in result.checks or ()):
            # Readers are told.
            assert re.search(rf"`{run.name}`: checks? .* not hold", listed)
