# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion`: memory to a slower node."""
