# SPDX-License-Identifier: GPL-2.0-only
"""Control of DAMON through its sysfs files."""
