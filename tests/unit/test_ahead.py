# SPDX-License-Identifier: GPL-2.0-only
"""Jobs of another process: each is done once, and failures are reported."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from helpers import ahead, queued_jobs


@pytest.fixture
def queue() -> Iterator[ahead.Queue]:
    started = ahead.Queue("helpers.queued_jobs", tuple(queued_jobs.JOBS))
    yield started
    started.stop()


def test_each_job_is_done_once(queue: ahead.Queue) -> None:
    first = [queue.result(name, queued_jobs.JOBS) for name in ("slow", "last")]
    assert first == [queue.result(n, queued_jobs.JOBS) for n in ("slow", "last")]
    done = {path.name for path in queue.process.here.glob("*.done")}
    assert done >= {"slow.done", "last.done"}


def test_whoever_waits_does_another_meanwhile(queue: ahead.Queue) -> None:
    # The job has begun there.
    while not (queue.process.here / "slow.claim").exists():
        time.sleep(0.01)
    assert queue.result("slow", queued_jobs.JOBS) == queue.process.process.pid
    assert queue.result("last", queued_jobs.JOBS) == os.getpid()


def test_what_is_done_ahead_gives_way(queue: ahead.Queue) -> None:
    """Its children have low priority, too, also where sessions are scheduled."""
    while not (queue.process.here / "patience.claim").exists():
        time.sleep(0.01)
    assert queue.result("patience", queued_jobs.JOBS) == min(os.nice(0) + 15, 19)
    autogroup = Path(f"/proc/{queue.process.process.pid}/autogroup")
    if autogroup.exists():
        assert autogroup.read_text().split()[-1] == "15"


def test_a_job_that_failed_says_why(queue: ahead.Queue) -> None:
    for _ in range(2):
        with pytest.raises(AssertionError, match="not this one"):
            queue.result("fails", queued_jobs.JOBS)


def test_a_process_that_is_gone_is_noticed(queue: ahead.Queue) -> None:
    while not (queue.process.here / "slow.claim").exists():
        time.sleep(0.01)
    queue.process.process.kill()
    with pytest.raises(AssertionError, match="exit code -9"):
        queue.result("slow", queued_jobs.JOBS)


def test_somebody_else_has_it(tmp_path: Path) -> None:
    (tmp_path / "last.claim").touch()
    ahead.do(tmp_path, "last", os.getpid)
    assert not (tmp_path / "last.done").exists()
