# SPDX-License-Identifier: GPL-2.0-only
"""`bench tiers`: commands of policies, times to settle, rows, tables and checks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.bench_data import page, result
from helpers.golden_files import check_golden
from helpers.tier_data import MIB, SECONDS, used
from pageferry.bench import spec
from pageferry.bench.lines import parse_line
from pageferry.bench.tiers import checks, policies
from pageferry.bench.tiers.rows import LeftOut, Used, make_rows, settled
from pageferry.errors import PageferryError
from pageferry.report import charts, difference, verdict
from pageferry.report.svg import Lines, Value
from pageferry.results.schema import Check, Row

GOLDEN = Path(__file__).resolve().parents[1] / "golden"
SLOW = [0, 100, 200, 300, 400, 500, 960, 990]
FAST = [500, 970, 980, 990, 1000, 1000, 1000, 1000]
NEVER = [0] * SECONDS


def rows_of(*samples: Used) -> list[Row]:
    return make_rows(samples, SECONDS, 100, 300)


def by_policy(rows: list[Row]) -> dict[str, Row]:
    return {row.engine: row for row in rows}


@pytest.mark.parametrize(
    ("permille", "phases", "wanted"),
    [
        (FAST, [0], [(2000, True)]),
        ([1000] * SECONDS, [0], [(1000, True)]),
        # It has to stay.
        ([1000, 1000, 949, 950, 1000, 1000, 1000, 1000], [0], [(4000, True)]),
        ([1000] * 7 + [949], [0], [(SECONDS * 1000, False)]),
        (NEVER, [0], [(SECONDS * 1000, False)]),
        # A look at the end of a phase belongs to it, and begins no other.
        (
            [0, 0, 1000, 1000, 0, 1000, 1000, 1000],
            [0, 4000],
            [(3000, True), (2000, True)],
        ),
        ([0, 0, 0, 0, 1000, 1000, 1000, 1000], [0, 4001], [(4001, False), (999, True)]),
    ],
)
def test_time_to_settle(
    permille: list[int], phases: list[int], wanted: list[tuple[int, bool]]
) -> None:
    assert list(settled(used("tier", permille, phases_ms=phases))) == wanted


@given(st.lists(st.integers(0, 1000), min_size=1, max_size=40))
def test_after_it_has_settled_the_share_stays(permille: list[int]) -> None:
    sample = used("tier", permille, elapsed_ns=(len(permille) + 1) * 10**9)
    ((ms, done),) = settled(sample)
    later = [
        share for at, share in zip(sample.at_ms, permille, strict=True) if at >= ms
    ]
    assert all(share >= 950 for share in later)
    assert done == (permille[-1] >= 950)
    before = [
        share for at, share in zip(sample.at_ms, permille, strict=True) if at < ms
    ]
    assert not before or before[-1] < 950


def test_figures_of_a_row() -> None:
    samples = [
        used("tier", FAST, round=1, moved_bytes=100, up_pages=2, ping_pong_pages=1),
        used("tier", SLOW, round=2, moved_bytes=300, up_pages=4, ping_pong_pages=2),
        used("tier", FAST, round=3, moved_bytes=200, up_pages=6, ping_pong_pages=0),
        # A warm-up would not count.
        used("tier", NEVER, round=0),
    ]
    (row,) = rows_of(*samples)
    own = row.tiers
    assert (row.bench, row.rounds, row.moved_bytes) == ("tiers", 3, 200)
    assert own.settled_ms is not None
    assert own.settled_ms.min == 2000 and own.settled_ms.max == 7000
    assert (own.phases, own.settled_phases, own.phase_settled_ms) == (3, 3, [2000])
    assert own.fast_share is not None and own.fast_share.median == 0.93
    assert own.migrated_bytes is not None and own.migrated_bytes.median == 200
    # 4 of 2048 followed pages of 1 GiB.
    assert own.up_bytes is not None and own.up_bytes.median == 2 * MIB
    assert own.ping_pong_share == 0.25
    assert own.pgdemote == 3 * 30 and own.pgpromote_success == 300
    # 93% at 100 ns and 7% at 300.
    assert own.model_access_ns is not None and own.model_access_ns.median == 114
    assert (own.model_fast_ns, own.model_slow_ns) == (100, 300)


def test_the_share_over_time_has_all_looks() -> None:
    (row,) = rows_of(used("tier", SLOW), used("tier", FAST, round=2))
    own = row.tiers
    # A look each second, and three parts of the time for each second.
    assert own.at_ms == [1000 * (n + 1) for n in range(SECONDS)]
    assert [share.min for share in own.share_over_time] == [
        each / 1000 for each in SLOW
    ]
    assert [share.max for share in own.share_over_time] == [
        each / 1000 for each in FAST
    ]
    late = used("tier", SLOW, at_ms=[1000 * (n + 1) + 400 for n in range(SECONDS)])
    (row,) = rows_of(late)
    assert len(row.tiers.at_ms) == SECONDS and row.tiers.at_ms[-1] == SECONDS * 1000


def test_unknown_figures_stay_unknown() -> None:
    lacking = used(
        "nothing", NEVER, stall_some_us=None, pgdemote_direct=None, up_pages=0
    )
    (row,) = rows_of(lacking)
    assert row.tiers.stall_some_us is None and row.tiers.pgdemote is None
    assert row.tiers.ping_pong_share is None and row.tiers.goals is None
    (row,) = rows_of(used("tier", FAST, pgdemote_proactive=5))
    assert row.tiers.pgdemote == 35


def test_an_unverified_measurement_is_a_failure() -> None:
    with pytest.raises(PageferryError, match="not verified"):
        rows_of(used("tier", FAST, verified=False))


def test_lines_are_read() -> None:
    fields = msgspec.to_builtins(used("damo", FAST, goals=False))
    line = parse_line(json.dumps({"type": fields.pop("type"), **fields}), Used, LeftOut)
    assert isinstance(line, Used) and line.goals is False
    left = '{"type": "left_out", "engine": "damo", "reason": "could not turn on damon"}'
    assert isinstance(parse_line(left, Used, LeftOut), LeftOut)


def some_rows() -> list[Row]:
    samples = []
    for number in (1, 2, 3):
        again = {"round": number}
        samples += [
            used("tier", FAST, moved_bytes=(200 + number) * MIB, goals=True, **again),
            used("nothing", NEVER, moved_bytes=0, up_pages=0, down_pages=0, **again),
            used("damo", SLOW, goals=False, moved_bytes=600 * MIB, **again),
            used("balancing", [*SLOW[:7], 900], **again),
        ]
        moving = {"load": "moving", "phases_ms": [0, 4000], "folio_bytes": 2 * MIB}
        samples.append(used("tier", FAST, **moving, **again))
    return rows_of(*samples)


def test_tables() -> None:
    rows = some_rows()
    assert [row.engine for row in rows[:4]] == list(policies.NAMES)
    check_golden(
        GOLDEN / "bench-tiers.txt", page(spec.load("tiers"), result(rows)) + "\n"
    )


def judged(*samples: Used) -> dict[str, Check]:
    return {
        check.name.partition(": ")[2]: check
        for check in checks.judge(rows_of(*samples))
    }


def test_checks_hold_what_was_promised() -> None:
    best = used("damo", SLOW, moved_bytes=500 * MIB)
    worse = used("balancing", NEVER, moved_bytes=1)
    found = judged(used("tier", FAST, moved_bytes=250 * MIB), best, worse)
    assert [check.ok for check in found.values()] == [True, True]
    assert found["time to settle"].measured == 3.5
    assert "damo" in found["time to settle"].wanted
    assert found["moved bytes"].measured == 0.5
    found = judged(used("tier", FAST, moved_bytes=251 * MIB), best, worse)
    assert [check.ok for check in found.values()] == [True, False]
    # By how much it does not hold.
    late = [0, 0, 0, 960, *FAST[:4]]
    late[4] = 960
    found = judged(used("tier", late, moved_bytes=0), best, worse)
    assert not found["time to settle"].ok
    assert found["time to settle"].measured == 1.75


def test_a_policy_that_never_settles_is_not_fast() -> None:
    # Its mean is below half, but the second phase does not settle.
    half = used("tier", [1000] * 4 + [0] * 4, phases_ms=[0, 4000])
    found = judged(half, used("balancing", NEVER))
    assert found["time to settle"].measured > 2 and not found["time to settle"].ok
    assert "does not settle" in found["time to settle"].detail
    # Nothing cannot be the best.
    # A check that compares nothing fails.
    alone = judged(used("tier", FAST), used("nothing", FAST))
    assert [check.detail for check in alone.values()] == ["no other policy ran"]
    absent = judged(used("damo", FAST), used("nothing", FAST))
    assert [check.detail for check in absent.values()] == ["tier did not run"]
    assert not any(check.ok for check in [*alone.values(), *absent.values()])
    assert [check.ok for check in checks.judge([])] == [False]
    # Against a policy that moves nothing, ours may move nothing.
    found = judged(used("tier", FAST), used("damo", NEVER, moved_bytes=0))
    assert not found["moved bytes"].ok


def test_of_policies_that_never_settle_the_best_has_most_fast_accesses() -> None:
    """A policy that moves nothing moves few bytes, and is not the best for that."""
    idle = used("balancing", NEVER, moved_bytes=1)
    busy = used("damo", [value + 1 for value in NEVER], moved_bytes=500 * MIB)
    for others in ((idle, busy), (busy, idle)):
        found = judged(used("tier", FAST, moved_bytes=250 * MIB), *others)
        assert [check.ok for check in found.values()] == [True, True]
        assert "damo" in found["moved bytes"].wanted


def test_the_page_has_a_chart_over_time_and_a_verdict() -> None:
    shown = result(some_rows())
    over = [c for c in charts.charts(shown, []) if c.key.startswith("over-time")]
    assert len(over) == 2 and isinstance(over[0], Lines)
    assert [line.name for line in over[0].lines] == list(policies.NAMES)
    assert over[0].linear and over[0].places == tuple("12345678")
    tier = over[0].lines[3]
    assert tier.points[0] == (0, Value(50, 50, 50))
    assert verdict.sentence(shown) == (
        "Of 2 loads, hot memory is on the fast tier first with: tier for 2."
    )
    never = result(rows_of(used("tier", NEVER)))
    assert verdict.sentence(never).endswith("none for 1.")
    slower = rows_of(used("tier", SLOW))
    faster = rows_of(used("tier", FAST))
    found = {
        each.figure.name: each.verdict
        for each in difference.compare(result(slower), result(faster)).found
    }
    assert found == {"time to settle": "better", "migrated": "equal"}


def damo_says(*, goals: bool) -> list[dict[str, object]]:
    """Let damo parse its options, and return both schemes."""
    damo = policies.find_damo()
    assert damo is not None
    words = [damo, "args", "damon", "--raw", *policies.damo_words(4, 7, goals=goals)]
    done = subprocess.run(
        words, capture_output=True, text=True, env={**os.environ, "HOME": "/tmp"}
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout[done.stdout.index("{") :])["kdamonds"]
    assert len(found) == 2
    return [kdamond["contexts"][0]["schemes"][0] for kdamond in found]


@pytest.mark.skipif(os.geteuid() != 0, reason="damo works for root alone")
@pytest.mark.parametrize("goals", [True, False])
def test_damo_takes_its_options(*, goals: bool) -> None:
    down, up = damo_says(goals=goals)
    assert (down["action"], down["target_nid"]) == ("migrate_cold", 7)
    assert (up["action"], up["target_nid"]) == ("migrate_hot", 4)
    metrics = [
        [(goal["metric"], goal["nid"]) for goal in scheme["quotas"]["goals"]]  # type: ignore[index]
        for scheme in (down, up)
    ]
    wanted = [[("node_mem_free_bp", "4")], [("node_mem_used_bp", "4")]]
    assert metrics == (wanted if goals else [[], []])
    kinds = [
        [(f["filter_type"], f["matching"], f["allow"]) for f in scheme["filters"]]  # type: ignore[attr-defined]
        for scheme in (down, up)
    ]
    # Kernels without goals by node may lack filters that allow: they reject the others.
    only = ("young", True, True) if goals else ("young", False, False)
    assert kinds == [[("young", True, False)], [only]]


def test_without_goals_damo_starts_all_the_same(tmp_path: Path) -> None:
    damo = tmp_path / "damo"
    damo.write_text('#!/bin/sh\necho "$*" >>"$0.log"\n! echo "$*" | grep -q goal\n')
    damo.chmod(0o755)
    command = policies.damo_command(str(damo), 0, 1)
    assert subprocess.run(["sh", "-c", command], check=False).returncode == 0
    log = Path(f"{damo}.log").read_text().splitlines()
    assert ["node_mem" in line for line in log] == [True, False]
    assert all(line.startswith("start --numa_node 0") for line in log)


@pytest.mark.parametrize("config", ["", 'cold_after = "2s"\nstall = 1.0'])
def test_tier_serves_the_program(
    config: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text('#!/bin/sh\necho "$PYTHONPATH $*"\n[ $# -lt 6 ] || cat\n')
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    command = policies.tier_command(config)
    done = subprocess.run(
        ["sh", "-c", command], capture_output=True, text=True, check=True
    )
    first, _, rest = done.stdout.partition("\n")
    source, *words = first.split()
    assert Path(source, "pageferry/bench").is_dir()
    assert words[:5] == ["-m", "pageferry", "tier", "--pid", str(os.getpid())]
    assert words[5:] == (["--config", "/dev/stdin"] if config else [])
    assert rest.strip() == config
