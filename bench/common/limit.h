/* SPDX-License-Identifier: GPL-2.0-only */
#ifndef PF_BENCH_LIMIT_H
#define PF_BENCH_LIMIT_H

#include <sched.h>

#include "bench.h"

const char *limit_choose_copy(void);
uint64_t limit_copy_ns(const struct region *src, struct region *dst,
		       unsigned int nr_threads, const cpu_set_t *cpus,
		       int caller_cpu);

#endif /* PF_BENCH_LIMIT_H */
