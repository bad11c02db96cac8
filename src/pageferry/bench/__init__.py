# SPDX-License-Identifier: GPL-2.0-only
"""Running the C programs in bench/ and making results of what they say."""
