# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry engine check dcbm`: try the DMA engines of this machine."""
