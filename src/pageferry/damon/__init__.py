# SPDX-License-Identifier: GPL-2.0-only
"""DAMON, by its sysfs files."""
