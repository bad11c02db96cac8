# SPDX-License-Identifier: GPL-2.0-only
"""The balancer's configuration, its metrics, and its command line."""

from __future__ import annotations

import json
import re
import urllib.request
from pathlib import Path

import pytest

from pageferry.balance import config, metrics
from pageferry.balance.config import Config, parse
from pageferry.cli import main
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave.weights import parse_weights

ROOT = Path(__file__).resolve().parents[2]
SHIPPED = ROOT / "packaging" / "systemd" / "balance.toml"


def test_what_is_shipped_can_be_read() -> None:
    found = config.load(SHIPPED)
    assert [str(program) for program in found.process] == ["name merci"]
    quota = found.move_quota
    assert quota is not None and quota.bytes_per_s == 1 << 30


def test_what_is_commented_out_there_are_the_defaults() -> None:
    lines = SHIPPED.read_text().splitlines()
    active = [re.sub(r"^#(?=\S+ = )", "", line) for line in lines]
    text = "\n".join(active).replace("#[bandwidth]", "[bandwidth]")
    full, default = parse(text, SHIPPED), Config(process=[])
    assert full.bandwidth == {"0": 72.0, "1": 26.0}
    assert full.settings == parse(SHIPPED.read_text(), SHIPPED).settings
    for name in ("source", "interval", "on_stop", "hold", "min_gain", "again"):
        assert getattr(full, name) == getattr(default, name)


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("", "process"),
        ("process = []", "no [[process]]"),
        ("[[process]]", "one of pid, name and cgroup"),
        ("[[process]]\npid = 1\nname = 'x'", "one of"),
        ("colour = 'red'\n[[process]]\npid = 1", "colour"),
        ("hold = 5\n[[process]]\npid = 1", "hold"),
        ("hold = 'soon'\n[[process]]\npid = 1", "soon"),
        ("budget = '1G'\n[[process]]\npid = 1", "SIZE/TIME"),
        ("home_below = 0.95\n[[process]]\npid = 1", "home_below < spread_above"),
        ("min_gain = -1.0\n[[process]]\npid = 1", "min_gain"),
        ("source = 'recorded'\n[[process]]\npid = 1", "record"),
        ("source = 'tea leaves'\n[[process]]\npid = 1", "source"),
        ("[[process]]\npid = 1\n[bandwidth]\nlocal = 1.0", "NODE = GB/s"),
        ("[[process]]\npid = 1\n[bandwidth]\n0 = 0.0", "NODE = GB/s"),
        ("interval = '1ms'\n[[process]]\npid = 1", "interval"),
        ("[[process", "configuration makes no sense"),
    ],
)
def test_what_makes_no_sense_is_named(text: str, word: str) -> None:
    with pytest.raises(PageferryError) as caught:
        parse(text, "file.toml")
    assert word in str(caught.value)
    assert caught.value.code == ExitCode.USAGE
    assert caught.value.value == "file.toml"


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(PageferryError, match="No such file") as caught:
        config.load(tmp_path / "none.toml")
    assert "docs/how-to/balance.md" in (caught.value.hint or "")


def figures() -> metrics.Figures:
    found = metrics.Figures({0: 72e9, 1: 26e9}, {0: 50e9}, parse_weights("0=3,1=1"))
    found.changes["spread"] = 2
    found.moved_bytes = 123_456_789_012
    found.gain = 1 / 3
    return found


def test_metrics_are_open_metrics(tmp_path: Path) -> None:
    text = metrics.render(figures())
    assert text.endswith("# EOF\n")
    samples = [line for line in text.splitlines() if not line.startswith("#")]
    pattern = r'pageferry_balance_[a-z_]+(\{[a-z]+="[a-z0-9]+"\})? [0-9.e+-]+'
    assert all(re.fullmatch(pattern, line) for line in samples)
    assert 'pageferry_balance_node_use_bytes_per_second{node="0"} 50000000000' in text
    assert 'pageferry_balance_node_weight{node="0"} 3' in text
    assert 'pageferry_balance_changes_total{kind="spread"} 2' in text
    assert "pageferry_balance_moved_bytes_total 123456789012" in text
    # The samples of a counter end in _total, but its name does not.
    assert "# TYPE pageferry_balance_changes counter" in text
    for line in text.splitlines():
        if line.startswith("# TYPE"):
            assert f"# HELP {line.split()[2]} " in text
    path = tmp_path / "new" / "balance.prom"
    metrics.write(path, text)
    assert path.read_text() == text
    assert [entry.name for entry in path.parent.iterdir()] == ["balance.prom"]


def test_prometheus_can_ask() -> None:
    listener = metrics.Listener("127.0.0.1:0")
    try:
        listener.text = metrics.render(figures())
        url = f"http://127.0.0.1:{listener.port}/metrics"
        with urllib.request.urlopen(url, timeout=10) as answer:
            assert answer.headers["Content-Type"] == metrics.CONTENT_TYPE
            assert answer.read().decode() == listener.text
    finally:
        listener.close()
    with pytest.raises(PageferryError, match="not an address"):
        metrics.Listener("everywhere")


def test_a_replay_is_one_document(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["balance", "--replay", "two-copies", "--bandwidth", "0=72,1=26"]
    assert main([*words, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["decisions"]
    assert [(d["kind"], d["weights"]) for d in found] == [
        ("spread", "0=3,1=1"),
        ("home", "0=1,1=0"),
    ]
    assert main(words) == 0
    assert capsys.readouterr().out.count("weights") == 2


@pytest.mark.parametrize(
    "words",
    [
        ["--replay", "two-copies"],
        ["--replay", "/no/such/file", "--bandwidth", "0=1"],
        ["--replay", "two-copies", "--bandwidth", "fast"],
        ["--replay", "two-copies", "--bandwidth", "0=0"],
        ["--config", "/no/such/file"],
        ["--pid", "everybody"],
    ],
    ids=" ".join,
)
def test_usage(words: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["balance", *words, "--json"]) == 2
    assert json.loads(capsys.readouterr().out)["error"]["exit_code"] == 2


def test_one_node_is_nothing_to_balance(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("PAGEFERRY_SYSFS_ROOT", str(tmp_path))
    assert main(["balance", "--name", "x", "--json"]) == 3
    assert "nothing to balance" in json.loads(capsys.readouterr().out)["error"]["what"]
