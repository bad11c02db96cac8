# SPDX-License-Identifier: GPL-2.0-only
"""`bench latency`: how long folios are out of reach."""
