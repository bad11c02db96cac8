/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Shared by the files of bench latency: counters, first folio, toucher, rate.
 */
#ifndef PF_BENCH_LATENCY_H
#define PF_BENCH_LATENCY_H

#include <pthread.h>
#include <stdatomic.h>

#include "engine.h"

/*
 * More buckets than the kernel has: 8 for each octave from 1 us to 1 s, and one
 * at each end.  A touch may take only a few nanoseconds.
 */
#define HIST_BUCKETS 320

struct histogram {
	uint64_t lower[HIST_BUCKETS], count[HIST_BUCKETS];
	size_t nr;		/* used buckets, by lower bound */
};

bool histogram_read(const char *path, struct histogram *h);
bool histogram_parse(const char *text, struct histogram *h);
void histogram_subtract(struct histogram *h, const struct histogram *before);
void histogram_add(struct histogram *h, uint64_t ns);
uint64_t histogram_lower(uint64_t ns);
void json_histogram(const char *key, const struct histogram *h);

/* unmapped.c: the kernel's counters for move_pages(2) */
struct unmapped_stats {
	struct histogram unmapped, waited;
	struct counters counted;
	struct counters longest;	/* since boot */
};

bool unmapped_prepare(void);
/* Read all, or with @since their increase since the last read. */
void unmapped_read(struct unmapped_stats *s, bool since);
void unmapped_report(const struct unmapped_stats *s);
bool unmapped_progress(uint64_t *folios, uint64_t *windows);

/* first.c: the tracepoint of the first folio, in an instance of its own */
bool first_open(void);
bool first_read(uint64_t *since_start_ns);

/* touch.c: a thread that keeps touching the memory that moves */
enum touch_mode { TOUCH_NONE, TOUCH_READ, TOUCH_WRITE };
extern const char *const touch_names[];

struct toucher {
	/* Set by the caller. */
	struct region *region;
	enum touch_mode mode;
	int cpu;
	uint64_t pause_ns;
	/* Private to touch.c. */
	pthread_t thread;
	atomic_int phase;
	uint32_t *written;	/* by page */
	uint64_t random;
	uint64_t quiet_ns, threshold_ns;
	uint64_t touches, slow, slept, slowest_ns, lost_ns, slept_ns;
	struct histogram hist;
};

void toucher_start(struct toucher *t);
void toucher_moving(struct toucher *t);
void toucher_stop(struct toucher *t);
void toucher_report(const struct toucher *t);

/* rate.c: a change of rate in the middle of a move */
struct slowdown {
	/* Set by the caller. */
	int cpu;
	uint64_t folios;	/* folios moved before the change */
	uint64_t skip_windows;
	uint64_t mbps, slow_mbps;
	/* Private to rate.c. */
	pthread_t thread;
	atomic_bool over;
	bool seen;
	uint64_t start, skipped_windows;
	struct unmapped_stats after;
};

void slowdown_start(struct slowdown *s);
void slowdown_stop(struct slowdown *s);

/* cases.c: the cases to measure */
#define LIMIT_DEFAULT UINT64_MAX

struct test_case {
	struct variant variant;
	size_t folio_bytes;
	uint64_t total_bytes;
	/* For engines only: without one, Linux ignores these settings. */
	uint64_t cap_pages, max_windows, limit_us;
	bool streaming;
	bool has_share;
	bool share;		/* dcbm lets the CPU copy a share */
	bool has_rate;
	uint64_t mbps;		/* of each simulated channel */
	enum touch_mode touch;
	uint64_t slow_percent, slow_factor;	/* 0: no change of rate */
};

bool case_parse(const char *text, struct test_case *t);

#endif /* PF_BENCH_LATENCY_H */
