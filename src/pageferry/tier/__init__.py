# SPDX-License-Identifier: GPL-2.0-only
"""Hot memory on fast nodes and cold memory on slow ones, by DAMON."""
