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

#define REASON "/stats/reasons/syscall_or_cpuset"
#define REASON_DIR OFFLOAD_DIR REASON

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

static void hist_read(struct histogram *h, const char *name, bool since)
{
	struct histogram before = *h;
	char path[128];

	snprintf(path, sizeof(path), REASON_DIR "/%s", name);
	if (!histogram_read(path, h))
		bench_die(BENCH_LACKING, "cannot read %s: %s", path,
			  strerror(errno));
	if (since)
		histogram_subtract(h, &before);
}

void unmapped_read(struct unmapped_stats *s, bool since)
{
	static const char *const counted[] = {
		"batches",	   "over_limit_folios", "unmapped_folios",
		"unmapped_sum_ns", "waited_threads",	"waited_sum_ns",
		NULL
	};
	static const char *const longest[] = { "unmapped_max_ns",
					       "waited_max_ns", NULL };

	if (!since)
		*s = (struct unmapped_stats){
			.counted = { .names = counted, .dir = REASON },
			.longest = { .names = longest, .dir = REASON },
		};
	hist_read(&s->unmapped, "unmapped_hist", since);
	hist_read(&s->waited, "waited_hist", since);
	counters_read(&s->counted, since);
	counters_read(&s->longest, false);
}

/* Read the two counters that show the progress of a move. */
bool unmapped_progress(uint64_t *folios, uint64_t *windows)
{
	return file_read_u64(REASON_DIR "/unmapped_folios", folios) &&
	       file_read_u64(REASON_DIR "/batches", windows);
}

void unmapped_report(const struct unmapped_stats *s)
{
	counters_report(&s->counted);
	counters_report(&s->longest);
	json_histogram("unmapped_hist", &s->unmapped);
	json_histogram("waited_hist", &s->waited);
}
