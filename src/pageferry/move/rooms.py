# SPDX-License-Identifier: GPL-2.0-only
"""Free memory of the destinations.

move_pages(2) would reclaim memory on a full node while pages of its list are unmapped,
and would split a large folio that does not fit. The tool leaves such pages in place.
"""

from __future__ import annotations

import re
from collections import Counter

from pageferry.interleave.moving import Room, read_room
from pageferry.move.account import Reason
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE

_NODES = "/sys/devices/system/node"


class Rooms:
    """The free memory of each node, less the pages that were promised since."""

    def __init__(self, files: Files) -> None:
        self.files = files
        self._rooms: dict[int, Room] = {}
        self._folios: dict[tuple[int, int], int] = {}
        self._used: Counter[int] = Counter()
        self._pools: dict[tuple[int, int], int] = {}

    def refresh(self) -> None:
        """Read the free memory again."""
        self._rooms = read_room(self.files)
        self._folios.clear()
        self._used.clear()
        self._pools.clear()

    def take(self, node: int, pages: int, kind: str) -> Reason | None:
        """Promise room for a page or folio, or return the reason against it."""
        if kind == "hugetlb" and self._take_from_pool(node, pages):
            return None
        room = self._rooms.get(node)
        # Some kernels do not show free blocks. The status of each page tells the rest.
        if room is None or not room.zones:
            return None
        order = (pages - 1).bit_length()
        # Round up: the used pages may touch that many blocks.
        taken = -(-self._used[node] >> order)
        if taken < self._fitting(node, order):
            self._used[node] += 1 << order
            return None
        if order and self._used[node] < self._fitting(node, 0):
            return Reason.NO_LARGE_ROOM
        return Reason.NO_ROOM

    def _fitting(self, node: int, order: int) -> int:
        if (node, order) not in self._folios:
            self._folios[node, order] = self._rooms[node].folios(order)
        return self._folios[node, order]

    def _take_from_pool(self, node: int, pages: int) -> bool:
        """Take a free page of the node's hugetlb pool; Linux uses these first."""
        if (node, pages) not in self._pools:
            kib = pages * PAGE // 1024
            name = f"{_NODES}/node{node}/hugepages/hugepages-{kib}kB/free_hugepages"
            text = self.files.read_or(name, "0")
            self._pools[node, pages] = int(text) if re.fullmatch(r"\d+", text) else 0
        if not self._pools[node, pages]:
            return False
        self._pools[node, pages] -= 1
        return True
