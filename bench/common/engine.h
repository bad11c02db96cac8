/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef PF_BENCH_ENGINE_H
#define PF_BENCH_ENGINE_H

#include "bench.h"

#define OFFLOAD_DIR "/sys/kernel/mm/migrate_offload"
#define OFFLOAD_DEBUG_DIR "/sys/kernel/debug/migrate_offload"

/*
 * One column of a result.  "stock" is a kernel without an active engine.
 * "limit" is plain memcpy without a migration.
 */
struct variant {
	char engine[32];
	unsigned int threads;	/* 0: the engine chooses */
	unsigned int channels;	/* of dcbm; 0: the present number */
	bool limit;
};

bool variant_parse(const char *text, struct variant *v);
bool is_stock(const struct variant *v);
void engine_check(const struct variant *v);
void engine_prepare(void);
void engine_allow_large(void);
void engine_limit_keep(void);
void engine_limit(const char *us);
void engine_copy_as_stock(bool stock);
void engine_select(const struct variant *v);
void engine_report(void);

/* Counters of the kernel, which may lack some. */
struct counters {
	const char *const *names;	/* ending with NULL */
	char dir[64];		/* below OFFLOAD_DIR; empty: /proc/vmstat */
	uint64_t value[8];
	bool known[8];
};

/* The counters of copies for one reason. */
extern const char *const copy_counters[];
#define COPIES_FOR(why) { .names = copy_counters, .dir = "/stats/reasons/" why }
/* The counters of an engine.  None is known for stock Linux, or for memcpy. */
enum { ENGINE_BYTES, ENGINE_NS };
struct counters engine_counters(const struct variant *v);

/* Read the counters, or with @since their increase since the last read. */
void counters_read(struct counters *c, bool since);
void counters_report(const struct counters *c);
/* CPUs keep some counts to themselves until this call. */
void counters_flush(void);

/* rate.c: the rate of simulated DMA channels */
bool rate_set(uint64_t mbps);

#endif /* PF_BENCH_ENGINE_H */
