# SPDX-License-Identifier: GPL-2.0-only
"""`bench cost`: instructions for each folio."""
