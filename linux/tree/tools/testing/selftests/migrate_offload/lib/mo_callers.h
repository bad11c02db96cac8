/* SPDX-License-Identifier: GPL-2.0-only */
/* Callers that migrate memory, and functions that trigger them. */
#ifndef MO_CALLERS_H
#define MO_CALLERS_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

#include "mo_area.h"

/* A range of page frames; @end lies behind the last frame. */
struct mo_range {
	__u64 start;
	__u64 end;
};

/**
 * struct mo_trip - memory that is about to migrate
 * @areas: the memory.
 * @nr_areas: the number of areas.
 * @every: the distance between pages that exist, in pages.
 * @must_move: bytes that must move at least.
 * @to: the node where these bytes must be, or -1: any node.
 * @away: the frames that all pages must leave.
 * @write_every_us: the pause of the writer between two writes.
 * @pfns: the frame of each page of each area before the trip.
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
 * struct mo_caller - a caller that migrates memory
 * @reason: the name of its reason; NULL: no engine ever copies for it.
 * @prepare: maps memory that can migrate.  Returns NULL, or why it cannot.
 * @go: migrates the memory, while a thread writes to it.
 * @finish: restores the machine while the memory still exists.  May be NULL.
 *	Called after @prepare, also if this failed.
 * @may_stay: the number of moved bytes depends on free memory, and so on
 *	chance.  The test repeats a trip that moved too little.
 */
struct mo_caller {
	const char *reason;
	const char *(*prepare)(struct mo_trip *trip);
	void (*go)(struct mo_trip *trip);
	void (*finish)(struct mo_trip *trip);
	bool may_stay;
};

/* Counters of the reason, or of the engine, if the caller has no reason. */
struct mo_caller_counts {
	long long engine_folios;
	long long engine_bytes;
	long long failed_folios;
	long long cpu_bytes;
};

/**
 * struct mo_outcome - the result of a trip
 * @why_not: the reason why there was no trip; NULL if there was one.
 * @arrived: enough pages moved to where they must be.
 * @intact: all content is right.
 * @moved: bytes whose page frame changed.
 * @by: counters of the copies, which other processes may increase, too.
 */
struct mo_outcome {
	const char *why_not;
	bool arrived;
	bool intact;
	size_t moved;
	struct mo_caller_counts by;
};

/* Requests of programs: callers_calls.c. */
extern const struct mo_caller mo_move_pages_call;
extern const struct mo_caller mo_mbind_call;
extern const struct mo_caller mo_migrate_pages_call;
extern const struct mo_caller mo_cpuset;
extern const struct mo_caller mo_demotion;
extern const struct mo_caller mo_demotion_other_lru;
extern const struct mo_caller mo_numa_balancing;

/* Requests for physical memory: callers_zones.c. */
extern const struct mo_caller mo_compaction;
extern const struct mo_caller mo_hot_unplug;
extern const struct mo_caller mo_longterm_pin;
extern const struct mo_caller mo_contig_alloc;
extern const struct mo_caller mo_soft_offline;

/*
 * Add an area of anonymous memory on the first node.  Returns NULL, or the
 * reason.
 */
const char *mo_trip_map(struct mo_trip *trip, size_t bytes, size_t folio_bytes);
/* Unmap all areas, so that the caller can map another trip. */
void mo_trip_unmap(struct mo_trip *trip);
/* Read the page frames of an area.  @pfns has an entry for each page. */
void mo_trip_pfns(const struct mo_trip *trip, const struct mo_area *area,
		  __u64 *pfns);
/* Bytes whose page frame has changed since the start of the trip. */
size_t mo_trip_moved(const struct mo_trip *trip);
/* Bytes of the trip in this range of frames. */
size_t mo_trip_bytes_in(const struct mo_trip *trip, struct mo_range range);
/* Returns the number of pages that are not on that node. */
unsigned long mo_trip_elsewhere(const struct mo_trip *trip, int node);

/* Returns true if the engine is available that ENGINE names, or else mtcopy. */
bool mo_caller_engine_is_there(void);
/* Make a trip with the current engines of reasons. */
struct mo_outcome mo_trip_once(const struct mo_caller *caller);
/*
 * Make trips until the engine did its part.  No other reason has an engine.
 */
struct mo_outcome mo_trips_with(const struct mo_caller *caller);
/* Make a trip while all reasons but this one have the engine. */
struct mo_outcome mo_trip_without(const struct mo_caller *caller);
/*
 * Returns true if the engine copied all that it must.  mtcopy leaves copies to
 * the CPU while no CPU is idle.  dcbm leaves failed copies to the CPU.
 */
bool mo_is_by_engine(const struct mo_outcome *outcome);

#endif /* MO_CALLERS_H */
