# SPDX-License-Identifier: GPL-2.0-only
"""Benchmark results: their schema, where they are kept, what they describe."""
