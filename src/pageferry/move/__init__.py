# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry move`: moves memory of processes, and explains the pages that stay."""
