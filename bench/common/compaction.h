/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the files of bench compaction. */
#ifndef PF_BENCH_COMPACTION_H
#define PF_BENCH_COMPACTION_H

#include "bench.h"

/* cpu_time.c: times of one CPU, in ticks of /proc/stat */
struct cpu_ticks {
	uint64_t user, system, idle, steal;
};

bool cpu_ticks_parse(const char *text, int cpu, struct cpu_ticks *ticks);
bool cpu_ticks_read(int cpu, struct cpu_ticks *ticks);
uint64_t cpu_ticks_ns(uint64_t before, uint64_t after);
uint64_t thread_cpu_ns(void);

/* fragments.c: memory with every other page free */
struct fragments {
	struct region region;
	unsigned char *kept;	/* per page, whether it is allocated */
};

bool fragments_make(struct fragments *f, size_t bytes, int node, uint64_t seed);
size_t fragments_sabotage(struct fragments *f);
void fragments_free(struct fragments *f);

#endif /* PF_BENCH_COMPACTION_H */
