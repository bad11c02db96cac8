# SPDX-License-Identifier: GPL-2.0-only
"""The files in which the running kernel shows its state."""
