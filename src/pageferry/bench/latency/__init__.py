# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`: the unmapped time of folios."""
