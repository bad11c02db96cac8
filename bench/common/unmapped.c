// SPDX-License-Identifier: GPL-2.0-only
/*
 * The kernel's statistics of unmapped time.
 *
 * The counters only grow, so two readings give the values of a move.  The
 * longest time is that since boot.
 */
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "latency.h"

#define REASON_DIR OFFLOAD_DIR "/stats/reasons/syscall_or_cpuset"

/*
 * Enable the times also without an engine.  Returns false on a kernel without
 * these, where all other values can be measured.
 */
bool unmapped_prepare(void)
{
	if (access(REASON_DIR "/unmapped_hist", R_OK))
		return false;
	setting_must_pin(OFFLOAD_DEBUG_DIR "/measure", "1");
	return true;
}

static uint64_t counter(const char *name)
{
	uint64_t value;
	char path[128];

	snprintf(path, sizeof(path), REASON_DIR "/%s", name);
	if (!file_read_u64(path, &value))
		bench_die(BENCH_LACKING, "cannot read a number from %s", path);
	return value;
}

static void times_read(struct times *t, const char *hist, const char *nr,
		       const char *sum, const char *max)
{
	char path[128];

	snprintf(path, sizeof(path), REASON_DIR "/%s", hist);
	if (!histogram_read(path, &t->hist))
		bench_die(BENCH_LACKING, "cannot read %s: %s", path,
			  strerror(errno));
	t->nr = counter(nr);
	t->sum_ns = counter(sum);
	t->max_ns = counter(max);
}

void unmapped_read(struct unmapped_stats *s)
{
	times_read(&s->unmapped, "unmapped_hist", "unmapped_folios",
		   "unmapped_sum_ns", "unmapped_max_ns");
	times_read(&s->waited, "waited_hist", "waited_threads",
		   "waited_sum_ns", "waited_max_ns");
	s->windows = counter("batches");
	s->over_limit_folios = counter("over_limit_folios");
}

/* Read the two counters that show the progress of a move. */
bool unmapped_progress(uint64_t *folios, uint64_t *windows)
{
	return file_read_u64(REASON_DIR "/unmapped_folios", folios) &&
	       file_read_u64(REASON_DIR "/batches", windows);
}

static void times_subtract(struct times *t, const struct times *before)
{
	histogram_subtract(&t->hist, &before->hist);
	t->nr -= before->nr;
	t->sum_ns -= before->sum_ns;
}

void unmapped_subtract(struct unmapped_stats *s,
		       const struct unmapped_stats *before)
{
	times_subtract(&s->unmapped, &before->unmapped);
	times_subtract(&s->waited, &before->waited);
	s->windows -= before->windows;
	s->over_limit_folios -= before->over_limit_folios;
}

void unmapped_report(const struct unmapped_stats *s)
{
	json_u64("windows", s->windows);
	json_u64("over_limit_folios", s->over_limit_folios);
	json_u64("unmapped_folios", s->unmapped.nr);
	json_u64("unmapped_sum_ns", s->unmapped.sum_ns);
	json_u64("unmapped_max_ns", s->unmapped.max_ns);
	json_histogram("unmapped_hist", &s->unmapped.hist);
	json_u64("waited_threads", s->waited.nr);
	json_u64("waited_sum_ns", s->waited.sum_ns);
	json_u64("waited_max_ns", s->waited.max_ns);
	json_histogram("waited_hist", &s->waited.hist);
}
