/* SPDX-License-Identifier: GPL-2.0-only */
/* dcbm: how to cut work up, and whether it pays.  No state, no locks. */
#ifndef _DCBM_MATH_H
#define _DCBM_MATH_H

#include <linux/types.h>

/*
 * What copying costs.  An engine that splits bytes over so many channels, for
 * a batch of so many folios:
 *
 *	fixed_ns + nr_folios * folio_ns + bytes * chan_ns_per_mib / nr_chans
 *
 * and the CPU: bytes * cpu_ns_per_mib.
 */
struct dcbm_model {
	u64 fixed_ns;
	u64 folio_ns;
	u64 chan_ns_per_mib;
	u64 cpu_ns_per_mib;	/* 0: nothing is known */
};

/* The best times of some batches, and what they were made of. */
struct dcbm_samples {
	size_t small_bytes;	/* one small folio */
	u64 small_ns;
	unsigned int nr_many;	/* that many of them */
	u64 many_ns;
	size_t large_bytes;	/* one large folio */
	u64 large_ns;
	u64 large_cpu_ns;
	unsigned int nr_chans;	/* that there are */
};

/* SIZE_MAX: never.  0: not known. */
struct dcbm_thresholds {
	size_t batch_bytes;	/* a batch of one folio pays from here on */
	size_t folio_bytes;	/* a full batch of folios of this size pays */
};

size_t dcbm_max_piece(size_t max_seg, unsigned int copy_align,
		      size_t opt_mapping);
unsigned int dcbm_wanted(size_t bytes, unsigned int nr_usable);
size_t dcbm_piece(size_t bytes, unsigned int nr_chans, bool few);
size_t dcbm_next_len(size_t folio_bytes, size_t offset, size_t piece,
		     size_t max_piece);
size_t dcbm_cpu_share(size_t bytes, u64 engine_ns, u64 cpu_ns,
		      u64 elsewhere_ns);
bool dcbm_takes_too_long(u64 expected_ns, u64 timeout_ns);
u64 dcbm_extra_ns(u64 expected_ns, u64 timeout_ns);
void dcbm_fit(struct dcbm_model *model, const struct dcbm_samples *s);
u64 dcbm_engine_ns(const struct dcbm_model *model, unsigned int nr_folios,
		   size_t bytes, unsigned int nr_usable);
u64 dcbm_cpu_ns(const struct dcbm_model *model, size_t bytes);
bool dcbm_wins(const struct dcbm_model *model, unsigned int nr_folios,
	       size_t bytes, unsigned int nr_usable);
void dcbm_compute_thresholds(const struct dcbm_model *model,
			     unsigned int nr_usable,
			     struct dcbm_thresholds *out);

#endif /* _DCBM_MATH_H */
