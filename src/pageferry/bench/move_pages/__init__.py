# SPDX-License-Identifier: GPL-2.0-only
"""`bench move-pages`: memory from node to node by move_pages(2)."""
