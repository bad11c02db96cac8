# SPDX-License-Identifier: GPL-2.0-only
"""From a source tarball and linux/ to a kernel image."""
