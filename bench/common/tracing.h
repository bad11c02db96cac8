/* SPDX-License-Identifier: GPL-2.0-only */
/* One event of the kernel, in a private instance of tracefs. */
#ifndef PF_BENCH_TRACING_H
#define PF_BENCH_TRACING_H

#include <stdbool.h>
#include <stdio.h>

bool tracing_knows_pids(const char *path);
bool tracing_open(const char *name, bool keep_latest, const char *filter);
bool tracing_set_event(const char *name, const char *value);
void tracing_empty(void);
FILE *tracing_read(void);
void tracing_read_done(FILE *f);
void tracing_close(void);

#endif /* PF_BENCH_TRACING_H */
