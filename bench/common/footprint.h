/* SPDX-License-Identifier: GPL-2.0-only */
/* footprint.c: memory in use */
#ifndef PF_BENCH_FOOTPRINT_H
#define PF_BENCH_FOOTPRINT_H

#include "engine.h"

struct footprint {
	uint64_t used_bytes;	/* all that is not free */
	uint64_t slab_bytes;	/* of the kernel's objects, pools among them */
	uint64_t percpu_bytes;	/* counters and histograms are there */
	uint64_t pool_objects;	/* in use, of the caches behind pools */
	bool knows_pools;	/* needs CONFIG_SLUB_DEBUG */
};

void footprint_read(struct footprint *f);
/* Lower @f to the values of @other. */
void footprint_least(struct footprint *f, const struct footprint *other);

#endif /* PF_BENCH_FOOTPRINT_H */
