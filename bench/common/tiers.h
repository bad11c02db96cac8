/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by benchmarks in which the kernel moves memory by itself. */
#ifndef PF_BENCH_TIERS_H
#define PF_BENCH_TIERS_H

#include "run.h"

/* The part of a zone that each CPU may keep in its lists of free pages. */
#define PCP_FRACTION "/proc/sys/vm/percpu_pagelist_high_fraction"

/* tiers.c */
#define ROWS_TIERS(r, from_node, to_node)				       \
	ROWS_NODES(r, from_node, to_node),				       \
	ROW_SIZES(r, "4K to 2M (default 4K,2M)"),	       \
	ROW_TOTAL(r, "in each measurement, a multiple of 2M\n(default 64M)"),  \
	ROW_ROUNDS(&(r)->rounds), ROW_VARIANTS(r), ROW_REACH(r),	       \
	ROW_MODULE(&(r)->modules), ROW_SABOTAGE(&(r)->sabotage, "")
#define TIER_DEFAULTS(from_node, to_node)				       \
	RUN_DEFAULTS(from_node, to_node, "stock"), .sizes_text = "4K,2M",      \
	.total_bytes = 64UL << 20

void tiers_report(void);
int tiers_choose_cpus(struct run *o);

/* The number of a region's pages on each node. */
struct placement {
	uint64_t from_bytes, to_bytes;
};

void placement_read(const struct region *r, const struct run *o,
		    struct placement *p);

/* last_move.c */
bool last_move_open(void);
void last_move_arm(pid_t pid, bool huge);
bool last_move_read(const char *reason, uint64_t *at_ns);
bool last_move_parse(const char *line, const char *reason, uint64_t *at_ns);

/* cgroup.c */
struct stall {
	uint64_t some_us, full_us;
};

void cgroup_open(void);
void cgroup_close(void);
bool cgroup_write(const char *name, const char *value);
bool cgroup_reclaim(uint64_t bytes);
void cgroup_limit(const char *name, int64_t above);
bool cgroup_stall(struct stall *s);
bool stall_parse(const char *text, const char *kind, uint64_t *us);

#endif /* PF_BENCH_TIERS_H */
