# SPDX-License-Identifier: GPL-2.0-only
"""The results of move_pages(2) and of exchanges, and their meaning."""

from __future__ import annotations

import ctypes
import errno
import os
from pathlib import Path

import pytest

from helpers.fake_process import BASE, add_process
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave.moving import ExchangeFile, MovePages
from pageferry.sysfs.files import Files

PID = 42
FILE = "/sys/kernel/debug/migrate_exchange"
_KTHREAD = 0x00200000


class _Failing:
    """A C library whose system calls all fail."""

    def __init__(self, error: int) -> None:
        self.error = error

    def syscall(self, *_: object) -> int:
        ctypes.set_errno(self.error)
        return -1


def failure(
    files: Files, error: int, monkeypatch: pytest.MonkeyPatch
) -> PageferryError:
    mover = MovePages(files)
    monkeypatch.setattr(mover, "_libc", _Failing(error))
    with pytest.raises(PageferryError) as caught:
        mover.move(PID, [BASE], 1)
    return caught.value


@pytest.mark.parametrize(
    ("error", "state"),
    [
        # The process has released its memory, and still runs for a moment.
        (errno.EINVAL, "R"),
        (errno.EINVAL, "Z"),
        (errno.ESRCH, "R"),
    ],
)
def test_a_process_that_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: int, state: str
) -> None:
    files = Files(root=tmp_path)
    add_process(files, PID, state=state)
    found = failure(files, error, monkeypatch)
    assert found.what == "the process ended meanwhile"
    assert found.code == ExitCode.FAILED


def test_a_process_that_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = failure(Files(root=tmp_path), errno.EINVAL, monkeypatch)
    assert found.what == "the process ended meanwhile"


def test_a_kernel_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = Files(root=tmp_path)
    add_process(files, PID, flags=_KTHREAD)
    found = failure(files, errno.EINVAL, monkeypatch)
    assert "kernel thread" in found.what
    assert found.code == ExitCode.USAGE


def test_a_file_that_is_missing_names_the_next_step(tmp_path: Path) -> None:
    files = Files(root=tmp_path)
    debug = files.path(FILE).parent
    with pytest.raises(PageferryError, match="mount -t debugfs") as caught:
        ExchangeFile(files)
    assert caught.value.code is ExitCode.UNSUPPORTED
    (debug / "extfrag").mkdir(parents=True)
    with pytest.raises(PageferryError, match="CONFIG_MIGRATE_EXCHANGE") as caught:
        ExchangeFile(files)
    assert caught.value.value == str(files.path(FILE))
    assert "pageferry kernel build" in str(caught.value.hint)


def test_the_file_gets_both_frames(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = Files(root=tmp_path)
    path = files.path(FILE)
    path.parent.mkdir(parents=True)
    path.touch()
    device = ExchangeFile(files)
    assert device.exchange(1234, 5678) == 0
    assert path.read_text() == "1234 5678\n"
    failure = errno.EAGAIN

    def fail(handle: int, data: bytes) -> int:
        raise OSError(failure, os.strerror(failure))

    monkeypatch.setattr(os, "write", fail)
    assert device.exchange(1, 2) == errno.EAGAIN
    failure = errno.EIO
    with pytest.raises(PageferryError, match="cannot exchange pages"):
        device.exchange(1, 2)


@pytest.mark.parametrize(
    ("number", "hint"), [(errno.EACCES, "as root"), (errno.EPERM, "lockdown")]
)
def test_a_file_that_may_not_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, number: int, hint: str
) -> None:
    def fail(path: Path, flags: int) -> int:
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(os, "open", fail)
    with pytest.raises(PageferryError, match=hint) as caught:
        ExchangeFile(Files(root=tmp_path))
    assert caught.value.code is ExitCode.FAILED
