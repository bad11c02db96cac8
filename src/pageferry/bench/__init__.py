# SPDX-License-Identifier: GPL-2.0-only
"""Runs the C programs in bench/, and makes results from their output."""
