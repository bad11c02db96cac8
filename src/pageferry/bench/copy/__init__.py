# SPDX-License-Identifier: GPL-2.0-only
"""The benchmark of the kernel's copy routines, in user space."""
