// SPDX-License-Identifier: GPL-2.0-only
/*
 * Has one caller migrate memory while a thread writes to it.  Checks that the
 * memory arrived intact, and which engine copied it.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_callers.h"
#include "mo_util.h"

#define PATH_FAIL_EVERY "/sys/kernel/debug/dmasim/dmasim.0/chan0/fail_every"

/* The writer is rarely active, so mtcopy finds an idle CPU most of the time. */
#define WRITE_EVERY_US 5000
/* mtcopy declines while the writer uses the idle CPU, so try this often. */
#define MAX_TRIPS 8
/* Trips of a caller that may leave memory in place: see mo_caller.may_stay. */
#define MAX_STAYS 8

/* An entry of /proc/self/pagemap. */
static const __u64 pm_present = 1ULL << 63;
static const __u64 pm_pfn = (1ULL << 55) - 1;

static const char *engine_name(void)
{
	return getenv("ENGINE") ?: "mtcopy";
}

bool mo_caller_engine_is_there(void)
{
	char names[256], *rest = names, *name;

	mo_read(PATH_OFFLOAD "available_engines", names, sizeof(names));
	while ((name = strsep(&rest, "\n ")))
		if (!strcmp(name, engine_name()))
			return true;
	return false;
}

/* Returns true if dmasim makes some descriptors fail. */
static bool engine_fails(void)
{
	return !strcmp(engine_name(), "dcbm") && mo_exists(PATH_FAIL_EVERY) &&
		mo_read_number(PATH_FAIL_EVERY) > 0;
}

static long long count(const struct mo_caller *caller, const char *name)
{
	char path[160];

	snprintf(path, sizeof(path), PATH_OFFLOAD "stats/%s/%s/%s",
		 caller->reason ? "reasons" : "engines",
		 caller->reason ?: engine_name(), name);
	return mo_read_number(path);
}

/*
 * Read the counters of the caller's reason, or, without a reason, of the
 * engine.
 */
static struct mo_caller_counts counts_of(const struct mo_caller *caller)
{
	return (struct mo_caller_counts) {
		.engine_folios = count(caller, "engine_folios"),
		.engine_bytes = count(caller, "engine_bytes"),
		.failed_folios = count(caller, "failed_folios"),
		.cpu_bytes = count(caller, "cpu_bytes"),
	};
}

static struct mo_caller_counts
counts_since(const struct mo_caller *caller,
	     const struct mo_caller_counts *before)
{
	struct mo_caller_counts now = counts_of(caller);

	now.engine_folios -= before->engine_folios;
	now.engine_bytes -= before->engine_bytes;
	now.failed_folios -= before->failed_folios;
	now.cpu_bytes -= before->cpu_bytes;
	return now;
}

const char *mo_trip_map(struct mo_trip *trip, size_t bytes, size_t folio_bytes)
{
	struct mo_area *area = &trip->areas[trip->nr_areas];
	const char *why_not;

	why_not = mo_map_with_patience(area, MO_ANON, bytes, folio_bytes);
	if (why_not)
		return why_not;
	trip->nr_areas++;
	trip->must_move += bytes;
	return NULL;
}

void mo_trip_pfns(const struct mo_trip *trip, const struct mo_area *area,
		  __u64 *pfns)
{
	size_t i, nr = area->bytes / SZ_4K;

	mo_pagemaps(area->mem, nr, pfns);
	for (i = 0; i < nr; i += trip->every) {
		if (!(pfns[i] & pm_present))
			mo_die("no page at %p", area->mem + i * SZ_4K);
		pfns[i] &= pm_pfn;
	}
}

static __u64 *new_pfns(const struct mo_trip *trip, const struct mo_area *area)
{
	__u64 *pfns = calloc(area->bytes / SZ_4K, sizeof(*pfns));

	if (!pfns)
		mo_die("no memory");
	mo_trip_pfns(trip, area, pfns);
	return pfns;
}

size_t mo_trip_bytes_in(const struct mo_trip *trip, struct mo_range range)
{
	size_t i, n, bytes = 0;

	for (n = 0; n < trip->nr_areas; n++) {
		const struct mo_area *area = &trip->areas[n];
		__u64 *pfns = new_pfns(trip, area);

		for (i = 0; i < area->bytes / SZ_4K; i += trip->every)
			if (range.start <= pfns[i] && pfns[i] < range.end)
				bytes += SZ_4K;
		free(pfns);
	}
	return bytes;
}

unsigned long mo_trip_elsewhere(const struct mo_trip *trip, int node)
{
	unsigned long pages = 0;
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++)
		pages += mo_elsewhere(&trip->areas[n], node);
	return pages;
}

static size_t trip_bytes(const struct mo_trip *trip)
{
	size_t n, bytes = 0;

	for (n = 0; n < trip->nr_areas; n++)
		bytes += trip->areas[n].bytes / trip->every;
	return bytes;
}

static void note_where_it_is(struct mo_trip *trip)
{
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++)
		trip->pfns[n] = new_pfns(trip, &trip->areas[n]);
}

size_t mo_trip_moved(const struct mo_trip *trip)
{
	size_t i, n, bytes = 0;

	for (n = 0; n < trip->nr_areas; n++) {
		const struct mo_area *area = &trip->areas[n];
		__u64 *pfns = new_pfns(trip, area);

		for (i = 0; i < area->bytes / SZ_4K; i += trip->every)
			if (pfns[i] != trip->pfns[n][i])
				bytes += SZ_4K;
		free(pfns);
	}
	return bytes;
}

static bool has_arrived(const struct mo_trip *trip, size_t moved)
{
	size_t there = moved, left;

	if (trip->to >= 0)
		there = trip_bytes(trip) -
			mo_trip_elsewhere(trip, trip->to) * SZ_4K;
	left = mo_trip_bytes_in(trip, trip->away);
	if (moved >= trip->must_move && there >= trip->must_move && !left)
		return true;
	printf("# %zu bytes must move: %zu moved, %zu on the target, %zu still in the range\n",
	       trip->must_move, moved, there, left);
	return false;
}

static bool is_intact(const struct mo_trip *trip)
{
	bool intact = true;
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++)
		intact &= mo_content_ok(&trip->areas[n]);
	return intact;
}

void mo_trip_unmap(struct mo_trip *trip)
{
	unsigned int n;

	for (n = 0; n < trip->nr_areas; n++) {
		free(trip->pfns[n]);
		trip->pfns[n] = NULL;
		mo_unmap(&trip->areas[n]);
	}
	trip->nr_areas = 0;
}

/* The writer changes one page after another, and notes the new content. */
static atomic_bool stop_writing;

static void *write_now_and_then(void *arg)
{
	struct mo_trip *trip = arg;
	size_t i, page;

	for (i = 0; !stop_writing; i++) {
		struct mo_area *area = &trip->areas[i % trip->nr_areas];

		page = mo_mix(i, 3) % (area->bytes / SZ_4K);
		page -= page % trip->every;
		memset(area->mem + page * SZ_4K, i & 0xff, SZ_4K);
		mo_expect_byte(area, page, i & 0xff);
		usleep(trip->write_every_us);
	}
	return NULL;
}

/* Migrate while the writer runs.  The engine is active only for this call. */
static void go(const struct mo_caller *caller, struct mo_trip *trip)
{
	pthread_t writer;

	stop_writing = false;
	if (pthread_create(&writer, NULL, write_now_and_then, trip))
		mo_die("cannot start a thread: %m");
	mo_select(engine_name());
	caller->go(trip);
	stop_writing = true;
	pthread_join(writer, NULL);
	mo_select("none");
}

static void say(const struct mo_outcome *outcome)
{
	const struct mo_caller_counts *by = &outcome->by;

	printf("# %zu bytes moved; copied for this reason: %lld by the engine",
	       outcome->moved, by->engine_bytes);
	printf(" (%lld folios), %lld by the CPU; %lld folios failed\n",
	       by->engine_folios, by->cpu_bytes, by->failed_folios);
}

static struct mo_outcome one_trip(const struct mo_caller *caller)
{
	struct mo_trip trip = {
		.every = 1,
		.to = -1,
		.write_every_us = WRITE_EVERY_US,
	};
	struct mo_outcome outcome = { .why_not = caller->prepare(&trip) };
	struct mo_caller_counts before;

	if (!outcome.why_not) {
		note_where_it_is(&trip);
		before = counts_of(caller);
		go(caller, &trip);
		outcome.by = counts_since(caller, &before);
		outcome.moved = mo_trip_moved(&trip);
		outcome.arrived = has_arrived(&trip, outcome.moved);
		outcome.intact = is_intact(&trip);
		say(&outcome);
	}
	if (caller->finish)
		caller->finish(&trip);
	mo_trip_unmap(&trip);
	return outcome;
}

struct mo_outcome mo_trip_once(const struct mo_caller *caller)
{
	struct mo_outcome outcome;
	int i;

	for (i = 0; i < MAX_STAYS; i++) {
		outcome = one_trip(caller);
		if (outcome.why_not || outcome.arrived || !outcome.intact ||
		    !caller->may_stay)
			break;
	}
	return outcome;
}

bool mo_is_by_engine(const struct mo_outcome *outcome)
{
	const struct mo_caller_counts *by = &outcome->by;
	long long moved = outcome->moved;

	if (by->engine_bytes + by->cpu_bytes < moved)
		return false;
	if (engine_fails())
		return by->engine_folios + by->failed_folios > 0;
	if (!strcmp(engine_name(), "mtcopy"))
		return by->engine_bytes >= moved / 2;
	return by->engine_bytes >= moved;
}

struct mo_outcome mo_trips_with(const struct mo_caller *caller)
{
	struct mo_outcome outcome;
	int i;

	mo_select_for_all("none");
	mo_select_for(caller->reason, "default");
	for (i = 0; i < MAX_TRIPS; i++) {
		outcome = mo_trip_once(caller);
		if (outcome.why_not || !outcome.arrived || !outcome.intact ||
		    mo_is_by_engine(&outcome))
			break;
	}
	return outcome;
}

struct mo_outcome mo_trip_without(const struct mo_caller *caller)
{
	mo_select_for_all("default");
	mo_select_for(caller->reason, "none");
	return mo_trip_once(caller);
}

