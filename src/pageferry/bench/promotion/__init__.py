# SPDX-License-Identifier: GPL-2.0-only
"""`bench promotion`: memory moves back to a faster node."""
