# SPDX-License-Identifier: GPL-2.0-only
"""`bench promotion`: memory back to a faster node."""
