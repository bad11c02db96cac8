# SPDX-License-Identifier: GPL-2.0-only
"""Assigns data races to our code or to Linux."""

from __future__ import annotations

from helpers import kcsan


def test_only_ours_count() -> None:
    ours = "BUG: KCSAN: data-race in migrate_hist_add.isra.0 / folio_lock"
    log = f"""\
[    1.0] BUG: KCSAN: data-race in shmem_getattr / shmem_recalc_inode
[    2.0] {ours}
[    3.0] {ours}
[    4.0] BUG: KCSAN: data-race in mtcopy_take
"""
    assert kcsan.ours(log) == [ours, "BUG: KCSAN: data-race in mtcopy_take"]
