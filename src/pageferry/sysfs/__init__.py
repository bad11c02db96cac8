# SPDX-License-Identifier: GPL-2.0-only
"""The running kernel, as its files show it."""
