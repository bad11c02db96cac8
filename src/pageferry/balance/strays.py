# SPDX-License-Identifier: GPL-2.0-only
"""Memory that is not at the places of its weights after a pass. No clock, no files.

Another pass for pinned memory, or for a full node, would move nothing and cost budget.
So memory that a pass has left counts only if the pass moved other memory meanwhile.
"""

from __future__ import annotations

# A pass that brings less than this fraction of the memory to its place has moved nothing.
_STEP = 0.01


class Strays:
    """The fraction of the memory that another pass may bring to its place."""

    def __init__(self) -> None:
        # The fraction that is elsewhere, the most since the begin of a pass, and the part
        # that stays there.
        self._apart = self._most = self._stays = 0.0
        self._ended = False

    def begin(self) -> None:
        """Begin a pass."""
        self._most, self._ended = self._apart, False

    def end(self) -> None:
        """End a pass. The next look shows what it has left."""
        self._ended = True

    def look(self, apart: float) -> None:
        """Look at a new placement."""
        if self._ended:
            self._stays = apart if self._most - apart < _STEP else 0.0
            self._ended = False
        self._apart, self._most = apart, max(self._most, apart)
        self._stays = min(self._stays, apart)

    @property
    def share(self) -> float:
        """Return the fraction that another pass may move."""
        return 0.0 if self._ended else self._apart - self._stays
