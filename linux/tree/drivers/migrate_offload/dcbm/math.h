/* SPDX-License-Identifier: GPL-2.0-only */
/* dcbm: the arithmetic of dividing work.  It has no state and no locks. */
#ifndef _DCBM_MATH_H
#define _DCBM_MATH_H

#include <linux/types.h>

size_t dcbm_max_seg(unsigned int said, bool is_pci);
size_t dcbm_max_piece(size_t max_seg, unsigned int copy_align,
		      size_t opt_mapping);
unsigned int dcbm_wanted(size_t bytes, unsigned int nr_usable);
size_t dcbm_piece(size_t bytes, unsigned int nr_chans);
size_t dcbm_cpu_share(size_t bytes, unsigned int nr_chans);
u64 dcbm_extra_ns(size_t bytes, u64 timeout_ns);
size_t dcbm_max_flying(u64 timeout_ns);

#endif /* _DCBM_MATH_H */
