# SPDX-License-Identifier: GPL-2.0-only
"""`bench scale`: cost over sizes, movers and time."""
