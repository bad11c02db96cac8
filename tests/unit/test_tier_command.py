# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry tier`, on a machine made of files."""

from __future__ import annotations

import json
import os
from itertools import count
from pathlib import Path

import pytest

from helpers.balance_machine import put
from helpers.fake_damon import FakeDamon
from helpers.fake_process import add_process
from helpers.tier_machine import MERCI, Machine, furnish
from pageferry.balance.config import Program
from pageferry.cli import main
from pageferry.damon.admin import TOP
from pageferry.interleave import lock


@pytest.fixture
def damon(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeDamon:
    """A kernel with DAMON, and two tiers."""
    damon = FakeDamon(root=tmp_path)
    furnish(damon)
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(damon.root))
    return damon


def test_status_shows_a_running_service(
    damon: FakeDamon,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert main(["tier", "--status"]) == 1
    us = os.getpid()
    add_process(damon, us, name="pageferry")
    machine = Machine(damon, MERCI)
    machine.steps(1)
    capsys.readouterr()
    # Its thread has used 20 ms of a second.
    put(damon, f"/proc/{damon.threads}/schedstat", "3600000000000 0 1")
    clock = count(100.0, 0.5)

    def sleep(_: float) -> None:
        put(damon, f"/proc/{damon.threads}/schedstat", "3600020000000 0 1")

    monkeypatch.setattr("time.monotonic", lambda: next(clock))
    monkeypatch.setattr("time.sleep", sleep)
    assert main(["tier", "--status", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["rate_part"] == 1.0 and found["alive"]
    assert found["cpu_share"] == {"kdamond 0": 0.02, "service": 0.0}
    assert main(["tier", "--status"]) == 0
    text = capsys.readouterr().out
    assert "ping-pong   0.0% of 0 promotions" in text
    assert f"service     process {us}\n" in text and "watching    kdamond 0" in text
    # Another process has its PID now.
    damon.path(f"/proc/{us}/stat").write_text(
        damon.path(f"/proc/{us}/stat").read_text().replace(f" {us * 10} ", " 9 ")
    )
    assert main(["tier", "--status"]) == 0
    assert f"process {us} was killed; pageferry tier --stop" in capsys.readouterr().out


def test_stop_ends_what_a_killed_service_has_left(
    damon: FakeDamon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tier", "--stop"]) == 1
    Machine(damon, []).steps(1)
    # A service that runs stops its kdamonds by itself.
    with lock.hold(damon, "tier", 0.0, "wait"):
        assert main(["tier", "--stop"]) == 1
    capsys.readouterr()
    damon.write(f"{TOP}/1/state", "off")
    assert main(["tier", "--stop"]) == 0
    assert "stopped 2 kdamonds" in capsys.readouterr().out


def test_a_second_service_is_refused(
    damon: FakeDamon, capsys: pytest.CaptureFixture[str]
) -> None:
    with lock.hold(damon, "tier", 0.0, "wait"):
        assert main(["tier", "--all", "--for", "1s"]) == 1
    assert "another pageferry command is at work" in capsys.readouterr().err


def test_a_dry_run_prints_writes(
    damon: FakeDamon, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["tier", "--all", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"migrate_cold > {damon.root}{TOP}/0/contexts/0/schemes/0/action" in out
    assert f"migrate_hot > {damon.root}{TOP}/1/contexts/0/schemes/0/action" in out
    assert damon.running() == [] and damon.read(f"{TOP}/nr_kdamonds") == "0"
    assert main(["tier", "--all", "--dry-run", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["writes"]


def test_a_dry_run_beside_a_service_stops_nothing(
    damon: FakeDamon, capsys: pytest.CaptureFixture[str]
) -> None:
    Machine(damon, MERCI).steps(1)
    assert main(["tier", "--all", "--dry-run"]) == 0
    said = capsys.readouterr()
    assert "killed" not in said.err and "another user" not in said.err
    assert "migrate_cold" in said.out and "off >" not in said.out
    assert damon.running() == ["0"]


def test_wrong_words(damon: FakeDamon) -> None:
    assert main(["tier", "--all", "--pid", "42"]) == 2
    assert main(["tier", "--pid", "x"]) == 2
    assert main(["tier", "--config", str(damon.root / "none")]) == 2


def test_the_replay(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["tier", "--replay", "static", "--json"]) == 0
    rows = {row["rule"]: row for row in json.loads(capsys.readouterr().out)["rows"]}
    assert rows["nothing"]["fast_share"] == 0.0
    assert rows["tier"]["fast_share"] > 0.98 and rows["tier"]["settled_s"] == 20
    assert rows["tier"]["ping_pong_bytes"] == 0


def test_status_shows_a_service_without_programs(
    damon: FakeDamon, capsys: pytest.CaptureFixture[str]
) -> None:
    add_process(damon, os.getpid(), name="pageferry")
    machine = Machine(damon, [Program(name="later")])
    machine.steps(1)
    assert damon.running() == []
    assert main(["tier", "--status"]) == 0
    assert f"process {os.getpid()}\n" in capsys.readouterr().out
    # It was killed, and has left nothing.
    damon.path(f"/proc/{os.getpid()}/stat").unlink()
    assert main(["tier", "--status"]) == 1
    assert "not running" in capsys.readouterr().err
