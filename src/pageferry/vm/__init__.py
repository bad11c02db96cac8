# SPDX-License-Identifier: GPL-2.0-only
"""Booting a kernel and running a command in it."""
