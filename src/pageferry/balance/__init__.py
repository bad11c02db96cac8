# SPDX-License-Identifier: GPL-2.0-only
"""Choosing weights by the bandwidth that nodes have left."""
