# SPDX-License-Identifier: GPL-2.0-only
"""Choose weights by the unused bandwidth of nodes."""
