# SPDX-License-Identifier: GPL-2.0-only
"""Results as people read them, with published figures beside them."""
