# SPDX-License-Identifier: GPL-2.0-only
"""`bench hugetlb`: the same with folios of hugetlb."""
