# SPDX-License-Identifier: GPL-2.0-only
"""`bench demotion`: memory moves to a slower node."""
