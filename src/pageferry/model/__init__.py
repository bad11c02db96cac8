# SPDX-License-Identifier: GPL-2.0-only
"""A model of page migration, which predicts designs from a machine's constants."""
