# SPDX-License-Identifier: GPL-2.0-only
"""The rules of docs/STYLE.md that a test can check, for pages and for comments."""

from __future__ import annotations

import re

MAX_WORDS = 25
BARE = re.compile(r"(What|Who|That)\b")
AVOIDED = re.compile(r"\b(for no good|in vain|somebody|whoever)\b", re.IGNORECASE)
