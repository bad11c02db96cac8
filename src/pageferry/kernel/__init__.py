# SPDX-License-Identifier: GPL-2.0-only
"""Build a kernel image from a source tarball and linux/."""
