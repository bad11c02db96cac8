# SPDX-License-Identifier: GPL-2.0-only
"""`bench compaction`: huge pages from fragmented memory."""
