# SPDX-License-Identifier: GPL-2.0-only
"""`bench hugetlb`: folios of hugetlb."""
