# SPDX-License-Identifier: GPL-2.0-only
"""The names of our locks, which a profile of locks is searched for."""

from __future__ import annotations

from helpers import lock_names


def test_names_of_our_locks() -> None:
    assert {"dcbm_lock", "&stream->lock", "engine_stats_lock"} <= lock_names.ours()
    assert "(dcbm_idle_wq).lock" in lock_names.ours()
    # A lock of dmasim alone, and one of Linux.
    assert "&d->unregister_lock" not in lock_names.ours()
    assert "&zone->lock" not in lock_names.ours()
    text = "&mm->mmap_lock-R 12, dcbm_lock#2 3, &rq->__lock/1 1"
    assert lock_names.named(text) == ["&mm->mmap_lock", "dcbm_lock", "&rq->__lock"]
    assert lock_names.named("") == []
