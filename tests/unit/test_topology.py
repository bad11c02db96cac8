# SPDX-License-Identifier: GPL-2.0-only
"""Topologies of users, and machines with unusual nodes."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from pageferry.cli import main
from pageferry.errors import ExitCode, PageferryError
from pageferry.vm import topology

TWO = """\
description = "mine"
cpus = 2
[[node]]
memory = "256M"
cpus = "0-1"
[[node]]
memory = "256M"
"""
SPEED = "latency_ns = 80\nbandwidth_mib_s = 1024\n"


def written(tmp_path: Path, text: str) -> str:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    return str(path)


def test_a_file_is_a_topology(tmp_path: Path) -> None:
    machine = topology.load(written(tmp_path, TWO))
    assert machine.with_memory == [0, 1]
    words = machine.qemu_args()
    assert "node,nodeid=0,memdev=ram0,cpus=0-1" in words
    assert "node,nodeid=1,memdev=ram1" in words
    assert machine.kernel_words() == []


def test_cpus_may_have_gaps(tmp_path: Path) -> None:
    text = TWO.replace("cpus = 2", "cpus = 4").replace('"0-1"', '"0,2-3"')
    machine = topology.load(written(tmp_path, text + 'cpus = "1"\n'))
    assert "node,nodeid=0,memdev=ram0,cpus=0,cpus=2-3" in machine.qemu_args()


def test_numbers_with_gaps_hide_the_memory_between() -> None:
    machine = topology.load("gaps")
    assert list(machine.numbers) == [0, 1, 3, 17]
    assert machine.with_memory == [0, 3, 17]
    assert "node,nodeid=1,cpus=2-3" in machine.qemu_args()
    # Node 0 ends at 1 GiB. Node 3 crosses the hole that QEMU leaves from 2 GiB to 4 GiB,
    # and ends 128 MiB above it.
    assert machine.kernel_words() == [
        "memmap=128M$0x40000000",
        "memmap=1664M$0x108000000",
    ]


def test_hidden_memory_may_end_below_the_hole(tmp_path: Path) -> None:
    text = TWO + 'number = 3\n[[node]]\nmemory = "2G"\n'
    machine = topology.load(written(tmp_path, text))
    assert machine.kernel_words() == ["memmap=256M$0x10000000"]
    # These hidden nodes lie on both sides of the hole.
    text = TWO.replace('"256M"\ncpus', '"1920M"\ncpus') + "number = 3\n"
    text += '[[node]]\nmemory = "1G"\n'
    machine = topology.load(written(tmp_path, text))
    assert machine.kernel_words() == [
        "memmap=128M$0x78000000",
        "memmap=128M$0x100000000",
    ]


def test_hidden_memory_is_not_touched_first() -> None:
    words = topology.load("gaps").qemu_args(preallocate=True)
    touched = [word for word in words if "prealloc=on" in word]
    assert [word.split(",")[1] for word in touched] == [
        "id=ram0",
        "id=ram3",
        "id=ram17",
    ]


def test_memory_that_comes_later() -> None:
    machine = topology.load("cxl")
    words = machine.qemu_args()
    assert words[words.index("-m") + 1] == "2048M,slots=1,maxmem=3072M"
    assert "pc-dimm,memdev=ram2,node=2" in words
    assert "node,nodeid=2,initiator=0" in words
    assert machine.kernel_words() == [
        "memhp_default_state=offline",
        "pageferry_online=1",
    ]
    assert "4,sockets=2,cores=2,threads=1" in words
    assert "dist,src=2,dst=1,val=24" in words


@pytest.mark.parametrize(
    ("name", "processors"),
    [
        ("cost", "1,sockets=1,cores=1,threads=1"),
        ("tiered", "2,sockets=1,cores=2,threads=1"),
        ("two-node", "2,sockets=2,cores=1,threads=1"),
        ("eight-cpus", "8,sockets=2,cores=4,threads=1"),
        ("sub-numa", "4,sockets=2,cores=2,threads=1"),
    ],
)
def test_nodes_have_packages(name: str, processors: str) -> None:
    words = topology.load(name).qemu_args()
    assert words[words.index("-smp") + 1] == processors


def test_a_hidden_node_has_distances_and_an_initiator() -> None:
    words = topology.load("gpu").qemu_args()
    assert "dist,src=0,dst=2,val=80" in words
    assert "dist,src=1,dst=2,val=20" in words
    assert "node,nodeid=1,memdev=ram1,initiator=0" in words
    assert not any("target=1," in word for word in words)


FAULTS = {
    "no node": ('description = "x"\ncpus = 1\nnode = []\n', "it has no [[node]]"),
    "order": (TWO + "number = 0\n", "has to be larger"),
    "first": (TWO.replace('cpus = "0-1"', 'cpus = "0-1"\nnumber = 1'), "number 0"),
    "large": (TWO + "number = 64\n", "node 64: the largest number is 63"),
    "gap before CPUs": (
        TWO.replace("cpus = 2", "cpus = 3") + 'number = 2\ncpus = "2"\n',
        "node 2: Linux would number it 1",
    ),
    "neither": (TWO + "[[node]]\n", "node 2: it has neither memory nor cpus"),
    "size": (TWO.replace('"256M"\ncpus', '"much"\ncpus'), "not a size: much"),
    "bytes": (TWO + '[[node]]\nmemory = "5K"\n', "multiple of 1M: 5K"),
    "early": (TWO + 'hotplug = true\n[[node]]\nmemory = "1G"\n', "only the last node"),
    "block": (TWO + '[[node]]\nmemory = "5M"\nhotplug = true\n', "multiple of 128M"),
    "bare": (TWO + 'cpus = "1"\nhotplug = true\n', "has memory and no cpus"),
    "half": (TWO + "latency_ns = 5\n", "belong together"),
    "zero": (TWO + SPEED.replace("80", "0"), "have to be positive"),
    "some": (TWO + SPEED + "initiator = 0\n", "node 0: all nodes with memory or none"),
    "no initiator": (
        TWO.replace("[[node]]\nmemory", "[[node]]\n" + SPEED + "memory"),
        "node 1: without cpus, HMAT needs its initiator",
    ),
    "initiator": (TWO + "initiator = 1\n", "initiator 1 is no node with cpus"),
    "no boot memory": (TWO.replace('memory = "256M"\ncpus', "cpus"), "cannot boot"),
    "cpu list": (TWO.replace('"0-1"', '"0-x"'), "not a list of CPUs: 0-x"),
    "cpu twice": (TWO + 'cpus = "1"\n', "CPUs on two nodes: 1"),
    "cpu beyond": (TWO.replace('"0-1"', '"0-2"'), "CPUs that do not exist: 2"),
    "cpu missing": (TWO.replace('"0-1"', '"1"'), "CPUs on no node: 0"),
    "sockets": (TWO.replace("cpus = 2", "cpus = 2\nsockets = 3"), "does not divide"),
    "cpus": (TWO.replace("cpus = 2", "cpus = 0"), "at least 1"),
    "rows": ("distances = [[10]]\n" + TWO, "2 rows with 2 numbers"),
    "own": ("distances = [[11, 20], [20, 10]]\n" + TWO, "row 1: a node's own distance"),
    "far": ("distances = [[10, 20], [255, 10]]\n" + TWO, "row 2: 255 is not between"),
    "field": (TWO + 'color = "red"\n', "color"),
    "toml": ("cpus = \n", "mine.toml"),
    "arm64": ('arch = "arm64"\n' + TWO, "needs fake_nodes"),
    "fake": ("fake_nodes = true\n" + TWO + "number = 5\n", "no other field"),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_named(name: str, tmp_path: Path) -> None:
    text, named = FAULTS[name]
    with pytest.raises(PageferryError) as caught:
        topology.load(written(tmp_path, text))
    assert caught.value.code == ExitCode.USAGE
    assert named in caught.value.line()
    assert "docs/reference/topologies.md" in (caught.value.hint or "")


def test_a_missing_file_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["vm", "run", "--topology", "no/such.toml", "--", "true"]) == 2
    assert "no/such.toml: No such file or directory" in capsys.readouterr().err


def test_a_benchmark_takes_a_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = written(tmp_path, TWO.replace("256M", "512M"))
    argv = ["bench", "move-pages", "--vm", "--topology", path, "--dry-run"]
    assert main([*argv, "--total", "64M"]) == 0
    assert f"boot topology {path}" in capsys.readouterr().out


SHIPPED = [n for n, t in topology.available().items() if not t.fake_nodes]


@pytest.mark.parametrize("name", SHIPPED)
def test_qemu_accepts_the_machine(name: str) -> None:
    """QEMU makes the machine, and does not start its CPUs."""
    qemu = shutil.which("qemu-system-x86_64")
    if qemu is None:
        pytest.skip("qemu-system-x86 is not installed")
    machine = topology.load(name)
    argv = [qemu, "-machine", "q35", "-accel", "tcg", "-S", "-nodefaults"]
    argv += ["-display", "none", "-monitor", "stdio", *machine.qemu_args()]
    done = subprocess.run(
        argv, input="info numa\nquit\n", capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    for number, node in machine.numbers.items():
        assert f"node {number} size: {node.memory_bytes >> 20} MB" in done.stdout
