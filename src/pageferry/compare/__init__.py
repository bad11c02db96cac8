# SPDX-License-Identifier: GPL-2.0-only
"""A program of the operator, with each engine in turn: `pageferry compare`."""
