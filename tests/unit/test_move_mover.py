# SPDX-License-Identifier: GPL-2.0-only
"""Moves pages in steps, and gives each page that stays its reason."""

from __future__ import annotations

import errno
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.fake_process import (
    BASE,
    FakeMover,
    add_area,
    add_node,
    add_process,
    large,
    set_flags,
)
from pageferry.errors import PageferryError
from pageferry.interleave.moving import UNTRIED
from pageferry.move import mover as module
from pageferry.move.account import Account, Reason
from pageferry.move.holders import parse_buffers
from pageferry.move.mover import Mover, Request
from pageferry.sysfs import pagebits, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import EXCLUSIVE, PAGE

PID = 42
SHMEM = pagebits.SWAP_BACKED | pagebits.LRU
ANON = pagebits.ANON | SHMEM
ONE_WAY = Request(sources=(0,), targets=(1,), limit_s=0.02)
PINNED = -UNTRIED


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    """A machine with two nodes and one process."""
    monkeypatch.setattr(module, "_WRITE_WAIT_S", 0.0)
    return machine(tmp_path)


def machine(root: Path) -> Files:
    files = Files(root=root)
    add_node(files, 0)
    add_node(files, 1)
    add_process(files, PID)
    return files


def add_pages(files: Files, flags: Sequence[int], first: int = 100) -> None:
    """Map pages with these flags, which no other process maps."""
    frames = [frame | EXCLUSIVE for frame in range(first, first + len(flags))]
    add_area(files, PID, BASE, frames)
    set_flags(files, first, flags)


def move(
    files: Files,
    fake: FakeMover,
    request: Request = ONE_WAY,
    keep_on: Callable[[], bool] = lambda: True,
) -> Account:
    work = Mover(files, fake, request, keep_on=keep_on)
    work.run(processes.require(files, PID))
    assert not any(work.account.rest().values())
    return work.account


def at(page: int) -> int:
    return BASE + page * PAGE


def test_all_pages_move(files: Files) -> None:
    add_pages(files, [ANON] * 100)
    found = move(files, FakeMover())
    assert found.moved == {"anonymous": 100}
    assert not found.stayed and not found.kept_pages
    assert found.steps.count and not found.steps.over_limit


def test_huge_pages_move_whole_and_count_in_base_pages(files: Files) -> None:
    add_pages(files, large(9, ANON), first=512)
    fake = FakeMover()
    assert move(files, fake).moved == {"anonymous huge": 512}
    assert fake.moves == [(BASE, 1)]


def test_pages_elsewhere_are_left_alone(files: Files) -> None:
    add_pages(files, [ANON] * 3)
    fake = FakeMover(where={at(1): 2, at(2): 1})
    found = move(files, fake)
    assert found.reasons() == {Reason.ELSEWHERE: 1, Reason.THERE: 1}
    assert found.moved_pages == found.asked("anonymous") == 1


@pytest.mark.parametrize(
    ("flags", "error", "reason"),
    [
        (ANON, PINNED, Reason.PINNED),
        (ANON, errno.EBUSY, Reason.PINNED),
        (ANON, errno.EAGAIN, Reason.PINNED),
        (ANON, errno.EACCES, Reason.SHARED),
        (ANON, errno.ENOMEM, Reason.NO_ROOM),
        (ANON, errno.EFAULT, Reason.KERNEL),
        (ANON | pagebits.WRITING, PINNED, Reason.WRITEBACK),
        (pagebits.LRU | pagebits.UNEVICTABLE, PINNED, Reason.UNEVICTABLE),
        # Shared memory with SHM_LOCK.
        (SHMEM | pagebits.UNEVICTABLE, PINNED, Reason.PINNED),
        (ANON | pagebits.UNEVICTABLE | pagebits.MLOCKED, PINNED, Reason.PINNED),
        (pagebits.SWAP_BACKED, PINNED, Reason.KERNEL),
        # Another mover has taken this page from its list for a moment.
        (pagebits.ANON, PINNED, Reason.PINNED),
    ],
)
def test_a_page_that_stays_has_a_reason(
    files: Files, flags: int, error: int, reason: Reason
) -> None:
    add_pages(files, [ANON, flags, ANON])
    found = move(files, FakeMover(stuck={at(1): error}))
    assert found.reasons() == {reason: 1}
    assert found.moved_pages == 2
    assert found.examples[reason] == (PID, at(1))


def test_a_large_page_without_room_stays_whole(files: Files) -> None:
    add_pages(files, large(9, ANON), first=512)
    found = move(files, FakeMover(stuck={BASE: errno.ENOMEM}))
    assert found.reasons() == {Reason.NO_LARGE_ROOM: 512}
    assert found.kept_pages == 512


@pytest.mark.parametrize(("shared", "moved"), [(False, 1), (True, 2)])
def test_shared_pages_need_all(files: Files, shared: bool, moved: int) -> None:
    add_area(files, PID, BASE, [5 | EXCLUSIVE, 6])
    set_flags(files, 5, [ANON, ANON])
    found = move(files, FakeMover(), Request((0,), (1,), 0.02, shared=shared))
    assert found.moved_pages == moved
    assert found.reasons()[Reason.SHARED] == 2 - moved
    assert not found.kept_pages


def test_pages_under_writeback_get_some_time(files: Files) -> None:
    add_pages(files, [ANON | pagebits.WRITING, ANON])
    fake = FakeMover()
    found = move(files, fake)
    assert found.reasons() == {Reason.WRITEBACK: 1}
    # The kernel was not asked to wait.
    assert fake.moves == [(at(1), 1)]


def test_written_pages_move_in_the_end(files: Files) -> None:
    add_pages(files, [ANON | pagebits.WRITING] * 2)
    fake = FakeMover()
    # The first part of the answer is read while the scan still sees the flag.
    query = fake.query

    def written(pid: int, addresses: Sequence[int]) -> Sequence[int]:
        set_flags(files, 100, [ANON, ANON])
        return query(pid, addresses)

    fake.query = written  # type: ignore[method-assign]
    assert move(files, fake).moved_pages == 2


@pytest.mark.parametrize(
    ("node", "frame", "reason"),
    [
        (-errno.EFAULT, 5, Reason.ZERO_PAGE),
        (-errno.ENOENT, 5, Reason.KERNEL),
        (-errno.ENOENT, 0, Reason.GONE),
    ],
)
def test_pages_without_a_node(
    files: Files, node: int, frame: int, reason: Reason
) -> None:
    add_area(files, PID, BASE, [5])
    set_flags(files, 5, [ANON])
    fake = FakeMover(where={BASE: node})
    if not frame:
        query = fake.query

        def freed(pid: int, addresses: Sequence[int]) -> Sequence[int]:
            with files.path(f"/proc/{PID}/pagemap").open("r+b") as stream:
                stream.seek(BASE // PAGE * 8)
                stream.write(bytes(8))
            return query(pid, addresses)

        fake.query = freed  # type: ignore[method-assign]
    assert move(files, fake).reasons() == {reason: 1}


def test_a_folio_that_was_split_after_the_scan_moves(files: Files) -> None:
    """A call for its first address moves one page, and not the other 511."""
    add_pages(files, large(9, ANON), first=512)
    fake = FakeMover()
    send = fake.move

    def split(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        if addresses == [BASE]:
            add_area(files, PID, BASE, [2048 | EXCLUSIVE])
        return send(pid, addresses, node)

    fake.move = split  # type: ignore[method-assign]
    assert move(files, fake).moved == {"anonymous huge": 512}
    assert {address for address, _ in fake.moves} == {at(n) for n in range(512)}


def test_a_page_that_comes_back_moves(files: Files) -> None:
    """The process frees it before the first call, and gets another one after it."""
    add_pages(files, [ANON] * 2)
    fake = FakeMover(stuck={at(1): errno.ENOENT})
    query = fake.query

    def touched(pid: int, addresses: Sequence[int]) -> Sequence[int]:
        if fake.steps:
            fake.stuck.clear()
        return query(pid, addresses)

    fake.query = touched  # type: ignore[method-assign]
    found = move(files, fake)
    assert found.moved_pages == 2 and not found.stayed


def test_memory_of_a_device_is_not_the_zero_page(files: Files) -> None:
    """Without root no flag tells that these are registers of a device."""
    files.path("/proc/kpageflags").unlink()
    add_area(files, PID, BASE, [5], "rw-p 00000000 00:05 9   /dev/mem")
    found = move(files, FakeMover(where={BASE: -errno.EFAULT}))
    assert found.reasons() == {Reason.KERNEL: 1}


def test_registered_buffers_name_their_ring(files: Files) -> None:
    add_pages(files, [ANON] * 4)
    add_ring(files, 9, at(1) + 100, 2 * PAGE - 200)
    stuck = {at(1): PINNED, at(2): PINNED, at(3): PINNED}
    found = move(files, FakeMover(stuck=stuck))
    assert found.reasons() == {Reason.PINNED: 3}
    assert found.pinned_by == {"io_uring, registered buffers of file descriptor 9": 2}
    assert any("direct read" in name for name in found.suspects)


def test_empty_slots_hide_no_buffer() -> None:
    text = (
        "UserBufs:\t3\n    0: <none>\n    1: 0x10000/4096\n    2: <none>\nPollList:\n"
    )
    assert parse_buffers(text) == [(0x10000, 0x11000)]


def add_ring(files: Files, number: int, start: int, size: int) -> None:
    """Give the process an io_uring with one registered buffer."""
    for name in ("fd", "fdinfo"):
        files.path(f"/proc/{PID}/{name}").mkdir(exist_ok=True)
    files.path(f"/proc/{PID}/fd/{number}").symlink_to("anon_inode:[io_uring]")
    files.path(f"/proc/{PID}/fdinfo/{number}").write_text(
        f"pos:\t0\nUserFiles:\t0\nUserBufs:\t1\n    0: {start:#x}/{size}\nPollList:\n"
    )


@pytest.mark.parametrize(
    ("link", "word"),
    [
        ("/dev/infiniband/uverbs0", "RDMA"),
        ("/dev/vfio/12", "VFIO"),
        ("anon_inode:[vfio-device]", "VFIO"),
        ("/dev/iommu", "iommufd"),
        ("pipe:[4711]", "vmsplice"),
    ],
)
def test_open_files_are_suspects(files: Files, link: str, word: str) -> None:
    add_pages(files, [ANON])
    files.path(f"/proc/{PID}/fd").mkdir()
    files.path(f"/proc/{PID}/fd/3").symlink_to(link)
    files.path(f"/proc/{PID}/fd/4").symlink_to("/etc/passwd")
    found = move(files, FakeMover(stuck={BASE: PINNED}))
    assert [word in name for name in found.suspects] == [True]


def test_a_dry_run_moves_nothing(files: Files) -> None:
    add_pages(files, [ANON] * 4)
    add_ring(files, 9, at(3), PAGE)
    fake = FakeMover()
    found = move(files, fake, Request((0,), (1,), 0.02, dry_run=True))
    assert found.movable == {"anonymous": 3}
    assert found.reasons() == {Reason.PINNED: 1}
    assert not fake.moves and not found.steps.count


def test_the_fixed_part_of_a_call_shrinks_no_step(
    files: Files, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the fixed part alone takes longer than the limit."""
    add_pages(files, [ANON] * 4096)
    fake = FakeMover()
    now_s = 0.0
    step = fake.move

    def slow(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        nonlocal now_s
        now_s += 0.1
        if list(addresses) != [module.NOWHERE]:
            now_s += len(addresses) * 1e-5
        return step(pid, addresses, node)

    fake.move = slow  # type: ignore[method-assign]
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    found = move(files, fake)
    assert found.steps.largest_pages == 1000
    assert found.steps.over_limit == 0
    assert found.steps.fixed_s == pytest.approx(0.1)


def test_a_full_node_is_followed_by_the_next(files: Files) -> None:
    add_node(files, 2)
    add_pages(files, [ANON] * 6)
    blocks = "0 " * 10
    files.path("/proc/buddyinfo").write_text(
        f"Node 1, zone Normal 2 {blocks}\nNode 2, zone Normal 3 {blocks}\n"
    )
    fake = FakeMover()
    found = move(files, fake, Request((0,), (1, 2), 0.02))
    assert [node for _, node in fake.moves] == [1, 1, 2, 2, 2]
    assert found.reasons() == {Reason.NO_ROOM: 1}


@pytest.mark.parametrize(
    ("sources", "targets", "routes"),
    [
        ((0, 2, 3), (5, 6), {0: 5, 2: 6, 3: 5}),
        ((0, 1), (0, 2), {1: 2}),
        ((0, 1), (0,), {1: 0}),
        # These two are in a comment of do_migrate_pages().
        ((2, 3, 4), (3, 4, 5), {2: 3, 3: 4, 4: 5}),
        (tuple(range(8)), (3, 4, 5), {0: 3, 1: 4, 2: 5, 6: 3, 7: 4}),
    ],
)
def test_nodes_go_where_migrate_pages_sends_them(
    sources: tuple[int, ...], targets: tuple[int, ...], routes: dict[int, int]
) -> None:
    request = Request(sources, targets, 0.02)
    assert request.routes == routes
    for node, target in routes.items():
        order = request.order_of_targets(node)
        assert order[0] == target
        assert set(order) == set(targets) - {node}


def test_a_node_of_both_lists_moves_on(files: Files) -> None:
    add_pages(files, [ANON] * 3)
    fake = FakeMover(where={at(1): 1, at(2): 2})
    found = move(files, fake, Request((0, 1), (1, 2), 0.02))
    assert sorted(fake.moves) == [(at(0), 1), (at(1), 2)]
    assert found.reasons() == {Reason.THERE: 1}


def test_memory_in_pieces_has_no_room_for_a_large_page(files: Files) -> None:
    add_pages(files, [*large(9, ANON), ANON], first=512)
    files.path("/proc/buddyinfo").write_text("Node 1, zone Normal 700 0 0 0\n")
    found = move(files, FakeMover())
    assert found.reasons() == {Reason.NO_LARGE_ROOM: 512}
    assert found.moved == {"anonymous": 1}


def test_hugetlb_pages_use_the_pool_first(files: Files) -> None:
    frames = [frame | EXCLUSIVE for frame in range(512, 1536)]
    add_area(files, PID, BASE, frames)
    set_flags(files, 512, large(9, pagebits.HUGETLB) * 2)
    files.path("/proc/buddyinfo").write_text("Node 1, zone Normal 700 0 0 0\n")
    pool = "/sys/devices/system/node/node1/hugepages/hugepages-2048kB"
    files.path(pool).mkdir(parents=True)
    files.path(f"{pool}/free_hugepages").write_text("1\n")
    found = move(files, FakeMover())
    assert found.moved == {"hugetlb": 512}
    assert found.reasons() == {Reason.NO_LARGE_ROOM: 512}


def test_the_command_stops_between_steps(files: Files) -> None:
    add_pages(files, [ANON] * 100)
    fake = FakeMover()
    found = move(files, fake, keep_on=lambda: len(fake.steps) < 2)
    assert found.interrupted
    assert len(fake.steps) == 2
    assert found.moved_pages == sum(fake.steps)
    assert found.reasons() == {Reason.NOT_TRIED: 100 - found.moved_pages}


def test_a_process_that_ends(files: Files) -> None:
    add_pages(files, [ANON] * 100)
    found = move(files, FakeMover(ends_after=2))
    assert found.ended_processes == 1
    assert found.reasons() == {Reason.GONE: 100 - found.moved_pages}
    assert found.moved_pages


def test_a_number_that_is_used_again_stops_the_move(files: Files) -> None:
    add_pages(files, [ANON] * 100)
    fake = FakeMover()
    step = fake.move

    def reuse(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        if list(addresses) != [module.NOWHERE]:
            stat = files.path(f"/proc/{PID}/stat")
            stat.write_text(stat.read_text().replace(f" {PID * 10} ", " 7777 "))
        return step(pid, addresses, node)

    fake.move = reuse  # type: ignore[method-assign]
    found = move(files, fake)
    assert len(fake.steps) == 1
    assert found.ended_processes == 1
    assert found.reasons() == {Reason.GONE: 100 - found.moved_pages}


def test_a_refused_destination_keeps_the_account(files: Files) -> None:
    add_pages(files, [ANON] * 10)
    fake = FakeMover()

    def refuse(pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
        raise PageferryError("the process may not have memory on this node")

    fake.move = refuse  # type: ignore[method-assign]
    work = Mover(files, fake, ONE_WAY)
    with pytest.raises(PageferryError):
        work.run(processes.require(files, PID))
    assert work.account.reasons() == {Reason.NOT_ALLOWED: 10}


def test_pages_behind_a_stuck_one_are_tried_again(files: Files) -> None:
    """The kernel may end a call at the first page that fails."""
    add_pages(files, [ANON] * 16)

    class Ends(FakeMover):
        def move(self, pid: int, addresses: Sequence[int], node: int) -> Sequence[int]:
            super().move(pid, addresses[:1], node)
            return [UNTRIED] * len(addresses)

    found = move(files, Ends())
    assert found.moved_pages == 16


FATES = st.sampled_from(
    [
        "moves",
        "pinned",
        "shared",
        "full",
        "written",
        "zero",
        "absent",
        "there",
        "elsewhere",
        "driver",
        "swapped",
    ]
)


@settings(max_examples=50, deadline=None)
@given(fates=st.lists(FATES, max_size=60), stop=st.none() | st.integers(0, 5))
def test_the_account_has_each_page_once(fates: list[str], stop: int | None) -> None:
    flag = {"zero": pagebits.ZERO_PAGE, "driver": pagebits.RESERVED}
    error = {"pinned": PINNED, "full": errno.ENOMEM, "shared": errno.EACCES}
    place = {"there": 1, "elsewhere": 2}
    reason = {
        "pinned": Reason.PINNED,
        "shared": Reason.SHARED,
        "full": Reason.NO_ROOM,
        "written": Reason.WRITEBACK,
        "zero": Reason.ZERO_PAGE,
        "absent": Reason.NEVER_TOUCHED,
        "there": Reason.THERE,
        "elsewhere": Reason.ELSEWHERE,
        "driver": Reason.KERNEL,
        "swapped": Reason.NOT_PRESENT,
    }
    with TemporaryDirectory() as directory, pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_WRITE_WAIT_S", 0.0)
        files = machine(Path(directory))
        frames = [
            0 if fate in ("absent", "swapped") else (100 + i) | EXCLUSIVE
            for i, fate in enumerate(fates)
        ]
        flags = [
            flag.get(fate, ANON | (pagebits.WRITING if fate == "written" else 0))
            for fate in fates
        ]
        if fates:
            add_area(files, PID, BASE, frames)
            set_flags(files, 100, flags)
        with files.path(f"/proc/{PID}/pagemap").open("r+b") as stream:
            for i, fate in enumerate(fates):
                if fate == "swapped":
                    stream.seek(at(i) // PAGE * 8)
                    stream.write(pagebits.SWAPPED.to_bytes(8, "little"))
        fake = FakeMover(
            where={at(i): place[f] for i, f in enumerate(fates) if f in place},
            stuck={at(i): error[f] for i, f in enumerate(fates) if f in error},
        )
        found = move(
            files, fake, keep_on=lambda: stop is None or len(fake.steps) < stop
        )
    assert found.found.total() == found.moved_pages + found.reasons().total()
    assert found.moved_pages == len(fake.moves) <= fates.count("moves")
    for fate, why in reason.items():
        assert found.reasons()[why] <= fates.count(fate)
    if stop is None:
        assert found.found.total() == len(fates)
        assert found.moved_pages == fates.count("moves")
        assert found.reasons() == {
            why: fates.count(fate) for fate, why in reason.items() if fate in fates
        }
