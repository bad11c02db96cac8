/* SPDX-License-Identifier: GPL-2.0-only */
/* Those who have memory migrate, and what it takes to make them do it. */
#ifndef MO_CALLERS_H
#define MO_CALLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#include "mo_area.h"

/* Frames of physical memory, the last one not included. */
struct mo_range {
	__u64 start;
	__u64 end;
};

/**
 * struct mo_trip - memory that is about to migrate
 * @areas: the memory.
 * @nr_areas: how many there are.
 * @every: one page in so many is there.
 * @must_move: how many bytes have to be elsewhere afterwards, at least.
 * @to: the node where these have to be, or -1: anywhere.
 * @away: where nothing may be left.
 * @write_every_us: how often a program writes to it.
 * @pfns: where each page of each area was.
 */
struct mo_trip {
	struct mo_area areas[2];
	unsigned int nr_areas;
	unsigned int every;
	size_t must_move;
	int to;
	struct mo_range away;
	unsigned int write_every_us;
	__u64 *pfns[2];
};

/**
 * struct mo_caller - somebody who has memory migrate
 * @reason: as which it is counted; NULL if no engine ever gets any of it.
 * @prepare: maps memory, and has it where it can leave.  NULL, or why not.
 * @go: has it migrate.  A program writes to it meanwhile.
 * @finish: leaves the machine as it was; the memory is still there.  May be NULL.
 *	Called if @prepare was, whatever that said.
 * @may_stay: how much has to go depends on where there is room, by chance: too
 *	little is tried again.
 */
struct mo_caller {
	const char *reason;
	const char *(*prepare)(struct mo_trip *trip);
	void (*go)(struct mo_trip *trip);
	void (*finish)(struct mo_trip *trip);
	bool may_stay;
};

/* What was counted for a reason; or, if it has none, for the engine. */
struct mo_caller_counts {
	long long engine_folios;
	long long engine_bytes;
	long long failed_folios;
	long long cpu_bytes;
};

/**
 * struct mo_outcome - what came of a trip
 * @why_not: why there was none; NULL if there was one.
 * @arrived: enough of it is where it should be.
 * @intact: all of it is as it should be.
 * @moved: how many bytes are not where they were.
 * @by: who copied them, and others.
 */
struct mo_outcome {
	const char *why_not;
	bool arrived;
	bool intact;
	size_t moved;
	struct mo_caller_counts by;
};

/* What a program asks for: callers_calls.c. */
extern const struct mo_caller mo_move_pages_call;
extern const struct mo_caller mo_mbind_call;
extern const struct mo_caller mo_migrate_pages_call;
extern const struct mo_caller mo_cpuset;
extern const struct mo_caller mo_demotion;
extern const struct mo_caller mo_demotion_other_lru;
extern const struct mo_caller mo_numa_balancing;

/* For the sake of physical memory: callers_zones.c. */
extern const struct mo_caller mo_compaction;
extern const struct mo_caller mo_hot_unplug;
extern const struct mo_caller mo_longterm_pin;
extern const struct mo_caller mo_contig_alloc;
extern const struct mo_caller mo_soft_offline;

/* One more area, of anonymous memory on the first node.  NULL, or why not. */
const char *mo_trip_map(struct mo_trip *trip, size_t bytes, size_t folio_bytes);
/* Removes all areas, so that a trip can be mapped anew. */
void mo_trip_unmap(struct mo_trip *trip);
/* Where are the pages of an area?  As many entries as it has pages. */
void mo_trip_pfns(const struct mo_trip *trip, const struct mo_area *area,
		  __u64 *pfns);
/* How many bytes are not where they were when the trip began? */
size_t mo_trip_moved(const struct mo_trip *trip);
/* How many bytes are in there? */
size_t mo_trip_bytes_in(const struct mo_trip *trip, struct mo_range range);
/* How many pages are not on that node? */
unsigned long mo_trip_elsewhere(const struct mo_trip *trip, int node);

/* Is the one there that ENGINE names, or else mtcopy? */
bool mo_caller_engine_is_there(void);
/* With the mask of reasons as it is. */
struct mo_outcome mo_trip_once(const struct mo_caller *caller);
/* Nothing but its reason is in the mask: until the engine has done its part. */
struct mo_outcome mo_trips_with(const struct mo_caller *caller);
/* Everything but its reason is. */
struct mo_outcome mo_trip_without(const struct mo_caller *caller);
/*
 * Has the engine done its part?  All of it; but mtcopy leaves to the CPU what comes
 * while no CPU is idle, and so do channels what they fail with.
 */
bool mo_is_by_engine(const struct mo_outcome *outcome);

#endif /* MO_CALLERS_H */
