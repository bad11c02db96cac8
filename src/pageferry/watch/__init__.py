# SPDX-License-Identifier: GPL-2.0-only
"""Migrations as they happen: `pageferry top`."""
