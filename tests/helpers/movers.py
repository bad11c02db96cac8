# SPDX-License-Identifier: GPL-2.0-only
"""Shared by the tests of many movers at once."""

from __future__ import annotations

# Load both engines without activating one; dcbm gets channels.
LOAD = """\
modprobe mtcopy && modprobe dmasim channels=4 && modprobe dcbm || exit 1
echo 1 >/sys/module/dcbm/offloading || exit 1
"""
NAMES = {
    "movers.mtcopy is_no_slower_than_none",
    "movers.dcbm is_no_slower_than_none",
    "movers content_is_right",
}
