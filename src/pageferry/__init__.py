# SPDX-License-Identifier: GPL-2.0-only
"""pageferry: build, boot, measure and control fast page migration."""

__version__ = "0.1.0"
