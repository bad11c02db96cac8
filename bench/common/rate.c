// SPDX-License-Identifier: GPL-2.0-only
/*
 * Set the rate of simulated DMA channels (dmasim) by debugfs, before and during
 * a move.
 */
#include <glob.h>
#include <stdatomic.h>

#include "latency.h"

#define RATES "/sys/kernel/debug/dmasim/*/chan*/bandwidth_mbps"
#define LOADED "/sys/module/dmasim/parameters/bandwidth_mbps"
#define POLL_NS 200000

static glob_t files;
static char loaded[32];	/* the module's initial value; empty: unchanged */

static bool rate_write(const char *value)
{
	bool ok = files.gl_pathc > 0;

	for (size_t i = 0; i < files.gl_pathc; i++)
		ok &= file_write(files.gl_pathv[i], value);
	return ok;
}

/* Async-signal-safe. */
static void rate_restore(void)
{
	if (loaded[0])
		rate_write(loaded);
}

/* Set the speed of each channel, in MB/s; 0: a CPU's speed.  False: no dmasim. */
bool rate_set(uint64_t mbps)
{
	if (!loaded[0]) {
		if (!file_read(LOADED, loaded, sizeof(loaded)) ||
		    glob(RATES, 0, NULL, &files)) {
			loaded[0] = '\0';
			return false;
		}
		settings_restore_after(rate_restore);
	}
	return rate_write(decimal(mbps).text);
}

/*
 * Wait until the requested part has moved, and slow all channels down.  Skip
 * the windows that the kernel needs to notice, then read the counters.  Later
 * growth belongs to the slow phase.
 */
static void *slowdown_main(void *arg)
{
	struct slowdown *s = arg;
	uint64_t folios, windows, at_windows;

	pin_to_cpu(s->cpu);
	do {
		bench_sleep_ns(POLL_NS);
		if (atomic_load(&s->over) ||
		    !unmapped_progress(&folios, &windows))
			return NULL;
	} while (folios - s->start < s->folios);
	if (!rate_set(s->slow_mbps))
		return NULL;
	at_windows = windows;
	do {
		bench_sleep_ns(POLL_NS);
		if (atomic_load(&s->over) ||
		    !unmapped_progress(&folios, &windows))
			return NULL;
	} while (windows - at_windows < s->skip_windows);
	unmapped_read(&s->after, false);
	s->skipped_windows = windows - at_windows;
	s->seen = true;
	return NULL;
}

void slowdown_start(struct slowdown *s)
{
	uint64_t windows;

	s->seen = false;
	atomic_store(&s->over, false);
	if (!unmapped_progress(&s->start, &windows))
		bench_die(BENCH_LACKING,
			  "this kernel does not say how far a move is");
	thread_start(&s->thread, slowdown_main, s);
}

void slowdown_stop(struct slowdown *s)
{
	atomic_store(&s->over, true);
	pthread_join(s->thread, NULL);
	rate_set(s->mbps);
}
