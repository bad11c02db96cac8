# SPDX-License-Identifier: GPL-2.0-only
"""A model of page migration: what a machine's constants say about a design."""
