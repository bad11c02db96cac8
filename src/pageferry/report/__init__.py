# SPDX-License-Identifier: GPL-2.0-only
"""Results for people, with published figures beside them."""
