# SPDX-License-Identifier: GPL-2.0-only
"""Passes from user space, over memory in a table."""

from __future__ import annotations

import errno
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from helpers.fake_process import (
    BASE,
    FakeMover,
    add_area,
    add_process,
    large,
    set_flags,
)
from pageferry.errors import PageferryError
from pageferry.interleave.moving import Room, read_room
from pageferry.interleave.user_space import STEP_BYTES, Pass, Quota, Report
from pageferry.interleave.weights import Weights, parse_weights
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

PID = 42
HUGE = 512 * PAGE


@pytest.fixture
def files(tmp_path: Path) -> Files:
    """A machine with one process."""
    files = Files(root=tmp_path)
    add_process(files, PID)
    return files


def go(
    files: Files, mover: FakeMover, weights: str, quota: Quota | None = None
) -> Report:
    return Pass(files, mover, parse_weights(weights), quota=quota).run([PID])


@given(
    st.lists(st.integers(0, 2), min_size=1, max_size=60),
    st.lists(st.integers(0, 5), min_size=3, max_size=3).filter(any),
)
def test_everything_gets_to_its_place_and_stays(
    where: list[int], weights: list[int]
) -> None:
    wanted = Weights(tuple(enumerate(weights)))
    with tempfile.TemporaryDirectory() as name:
        files = Files(root=Path(name))
        add_process(files, PID)
        add_area(files, PID, BASE, [100 + at for at in range(len(where))])
        mover = FakeMover({BASE + at * PAGE: node for at, node in enumerate(where)})
        begin = dict(mover.where)
        done = Pass(files, mover, wanted).run([PID])
        ring = wanted.round()
        places = {a: ring[a // PAGE % len(ring)] for a in begin}
        assert mover.where == places
        assert done.moved_pages == sum(begin[a] != places[a] for a in begin)
        assert done.pages == Counter(places.values())
        assert Pass(files, mover, wanted).run([PID]).moved_pages == 0


def test_a_look_moves_nothing(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 108)))
    mover = FakeMover()
    found = Pass(files, mover, parse_weights("0=1,1=1")).look([PID])
    assert (found.left_pages, found.pages[0], mover.moves) == (4, 8, [])


def test_huge_pages_move_whole(files: Files) -> None:
    add_area(files, PID, BASE, list(range(512, 512 * 5)))
    for at in range(1, 5):
        set_flags(files, 512 * at, large(9))
    mover = FakeMover()
    done = go(files, mover, "0=3,1=1")
    assert len(mover.moves) == 1
    assert mover.moves[0][0] % HUGE == 0
    assert done.pages == {0: 3 * 512, 1: 512}


def test_a_full_node_gets_what_fits(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 200)))
    mover = FakeMover(free={1: 30})
    done = go(files, mover, "0=0,1=1")
    assert done.moved_pages == 30
    assert done.no_room == {1: 70}
    assert done.pages == {0: 70, 1: 30}


BUDDY = "Node 1, zone   Normal " + " ".join(["0"] * 9) + " 3 1\n"
ZONES = """\
Node 0, zone      DMA
  per-node stats
      nr_inactive_anon 0
  pages free     100
        high     16
        protection: (0, 1912, 1912, 1912)
Node 1, zone   Normal
  pages free     2560
        min      200
        low      250
        high     512
        protection: (0, 0, 0, 0)
    pagesets
      cpu: 0
              count: 5
              high:  99
"""


def fill(files: Files) -> None:
    files.path("/proc/zoneinfo").write_text(ZONES)
    files.path("/proc/buddyinfo").write_text(
        f"Node 0, zone      DMA 1 1 1 1 1 1 1 1 1 1 1\n{BUDDY}"
    )


def test_the_room_of_a_node(files: Files) -> None:
    fill(files)
    room = read_room(files)
    # Memory for old devices does not count.
    assert list(room) == [1]
    # Three blocks of 512 pages and one of 1024, less the pages that stay free.
    assert room[1].folios(0) == 2560 - 512
    assert room[1].folios(9) == 4
    assert Room((((600, 0, 0), 100),)).folios(1) == 0
    assert read_room(Files(root=files.root / "nowhere")) == {}


def test_huge_pages_that_would_be_split_stay(files: Files) -> None:
    fill(files)
    add_area(files, PID, BASE, list(range(512, 512 * 9)))
    for at in range(1, 9):
        set_flags(files, 512 * at, large(9))
    mover = FakeMover()
    done = go(files, mover, "0=0,1=1")
    # In this test, the kernel reports the same free memory after each move.
    assert max(mover.steps) <= 4
    assert done.no_room or done.moved_pages == 8 * 512


def test_what_cannot_move_is_named(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 110)))
    mover = FakeMover(
        stuck={
            BASE: errno.EBUSY,
            BASE + PAGE: errno.EFAULT,
            BASE + 2 * PAGE: errno.EXFULL,
        }
    )
    done = go(files, mover, "0=0,1=1")
    assert done.moved_pages == 7
    assert done.unmovable == {
        "busy or pinned": 1,
        "memory of devices or of the kernel": 1,
        "EXFULL": 1,
    }
    # Shares refer to the pages that can move.
    assert done.pages == {0: 0, 1: 7}
    assert not done.no_room


def test_steps_are_bounded(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 400)))
    mover = FakeMover()
    go(files, mover, "0=0,1=1", quota=Quota(40 * PAGE, 0.001))
    assert max(mover.steps) == 40
    assert STEP_BYTES // PAGE >= 4096


def test_a_quota_is_kept(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 200)))
    begin = time.monotonic()
    go(files, FakeMover(), "0=0,1=1", quota=Quota(25 * PAGE, 0.05))
    # The last step starts after the time for the first 75 pages.
    assert time.monotonic() - begin >= 0.15


def test_a_process_that_ends_says_how_far_it_came(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 200)))
    mover = FakeMover(ends_after=2)
    with pytest.raises(PageferryError, match="ended meanwhile") as caught:
        go(files, mover, "0=0,1=1", quota=Quota(10 * PAGE, 0.001))
    assert "had been moved until then" in (caught.value.detail or "")


@pytest.mark.parametrize("first", [PID, PID + 1])
def test_a_newcomer_with_a_pid_of_the_pass_is_left_alone(
    files: Files, monkeypatch: pytest.MonkeyPatch, first: int
) -> None:
    """A child ends before its turn, or in the middle of it."""
    for pid in (PID, PID + 1):
        add_process(files, pid)
        start = BASE + pid * (1 << 30)
        add_area(files, pid, start, list(range(100, 200)))
    mover = FakeMover()
    move, moves = mover.move, Counter[int]()

    def then_reuse(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        moves[pid] += 1
        stat = files.path(f"/proc/{PID + 1}/stat")
        stat.write_text(stat.read_text().replace(f" {(PID + 1) * 10} ", " 99999 "))
        return move(pid, addresses, node)

    monkeypatch.setattr(mover, "move", then_reuse)
    work = Pass(files, mover, parse_weights("0=0,1=1"), quota=Quota(50 * PAGE, 0.001))
    second = 2 * PID + 1 - first
    assert work.run([first, second]).moved_pages == (100 if first == PID else 150)
    assert moves == ({PID: 2} if first == PID else {PID: 2, PID + 1: 1})


def test_a_pass_that_is_called_off_stops_in_the_middle(files: Files) -> None:
    add_area(files, PID, BASE, list(range(100, 200)))
    mover = FakeMover()
    work = Pass(
        files,
        mover,
        parse_weights("0=0,1=1"),
        quota=Quota(10 * PAGE, 0.001),
        keep_on=lambda: len(mover.steps) < 3,
    )
    assert work.run([PID]).moved_pages == 30
