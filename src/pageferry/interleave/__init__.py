# SPDX-License-Identifier: GPL-2.0-only
"""Spreading a process's memory over nodes by weight."""
