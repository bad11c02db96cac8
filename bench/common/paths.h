/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * paths.c: other callers than move_pages(2) that migrate folios, pass by pass.
 */
#ifndef PF_BENCH_PATHS_H
#define PF_BENCH_PATHS_H

#include "bench.h"

enum path_kind {
	PATH_MOVE_PAGES,	/* in cost.c, with folio sizes */
	PATH_MBIND,
	PATH_MIGRATE_PAGES,
	PATH_HUGETLB,
	PATH_COMPACTION,
	PATH_DEMOTION,
	PATH_PROMOTION,
	PATH_CACHED,	/* page cache that no process maps, by DAMON */
	PATH_TMPFS,
	NR_PATHS,
};

struct path_pass {
	uint64_t ns;
	uint64_t folios;	/* pages that moved in this pass */
};

extern const char *const path_names[NR_PATHS + 1];

size_t path_folio_bytes(enum path_kind kind);
uint64_t path_needs(enum path_kind kind, uint64_t bytes, unsigned int nr);
void path_run(enum path_kind kind, uint64_t bytes, struct path_pass *passes,
	      unsigned int nr);

#endif /* PF_BENCH_PATHS_H */
