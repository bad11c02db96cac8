# SPDX-License-Identifier: GPL-2.0-only
"""One small module per verb; pageferry.cli has the list."""
