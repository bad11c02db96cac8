/* SPDX-License-Identifier: GPL-2.0-only */
/* dcbm: the arithmetic of dividing work.  It has no state and no locks. */
#ifndef _DCBM_MATH_H
#define _DCBM_MATH_H

#include <linux/types.h>

/*
 * A smaller piece is not worth a descriptor, a mapping and an interrupt: it
 * takes less than 8 us at 4 GB/s.  Smaller folios get a descriptor of their own,
 * unless they are next to each other.
 */
#define DCBM_MIN_PIECE		SZ_32K

size_t dcbm_max_seg(unsigned int said, bool is_pci);
size_t dcbm_max_piece(size_t max_seg, unsigned int copy_align,
		      size_t opt_mapping);
unsigned int dcbm_wanted(size_t bytes, unsigned int nr_usable);
size_t dcbm_run(size_t bytes, unsigned int nr_chans);
size_t dcbm_piece(size_t bytes, unsigned int nr_chans);
size_t dcbm_cpu_share(size_t bytes, unsigned int nr_chans);
u64 dcbm_extra_ns(size_t bytes, u64 timeout_ns);
size_t dcbm_max_flying(u64 timeout_ns);

#endif /* _DCBM_MATH_H */
