# SPDX-License-Identifier: GPL-2.0-only
"""`bench tiers`: how soon hot memory is on the fast tier, and what that costs."""
