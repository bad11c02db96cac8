# SPDX-License-Identifier: GPL-2.0-only
"""DMA engines that can copy memory, and dcbm, which uses them."""
