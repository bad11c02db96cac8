# SPDX-License-Identifier: GPL-2.0-only
"""Write parts of pageferry's changes as series of patches for a mailing list."""
