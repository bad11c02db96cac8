# SPDX-License-Identifier: GPL-2.0-only
"""The results of move_pages(2), and their meaning for a whole process."""

from __future__ import annotations

import ctypes
import errno
from pathlib import Path

import pytest

from helpers.fake_process import BASE, add_process
from pageferry.errors import ExitCode, PageferryError
from pageferry.interleave.moving import MovePages
from pageferry.sysfs.files import Files

PID = 42
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
