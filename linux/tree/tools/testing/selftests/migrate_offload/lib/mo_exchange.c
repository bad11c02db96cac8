// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mo_exchange.h"
#include "mo_hazard.h"

/* Bits of /proc/self/pagemap. */
static const __u64 pm_present = 1ULL << 63;
static const __u64 pm_frame = (1ULL << 55) - 1;

#define TRIES 200
#define TRY_US 1000
#define PAIR_TRIES 5

const char *mo_exchange_cannot(void)
{
	if (mo_cannot_run())
		return mo_cannot_run();
	return mo_exists(PATH_EXCHANGE) ? NULL : "no CONFIG_MIGRATE_EXCHANGE";
}

/* Without a free block, a move splits a large folio.  So may reclaim. */
static bool is_whole(const struct mo_area *area)
{
	size_t i;

	for (i = 0; i < area->bytes && area->folio_bytes > SZ_4K;
	     i += area->folio_bytes)
		if (!mo_page_flag(area->mem + i, KPF_COMPOUND_HEAD))
			return false;
	return true;
}

void mo_pair_map(struct mo_pair *pair, size_t bytes, size_t folio_bytes)
{
	int tries;

	for (tries = 0; tries < PAIR_TRIES; tries++) {
		if (folio_bytes > SZ_4K && mo_exists(PATH_COMPACT))
			mo_write(PATH_COMPACT, "1");
		mo_map_anon(&pair->a, bytes, folio_bytes);
		mo_map_anon(&pair->b, bytes, folio_bytes);
		if (mo_move(&pair->b, mo_nodes[1]))
			mo_die("cannot move pages to the second node");
		if (is_whole(&pair->a) && is_whole(&pair->b))
			return;
		mo_unmap(&pair->a);
		mo_unmap(&pair->b);
		sleep(1);
	}
	mo_die("the kernel has split a folio in each try");
}

__u64 mo_frame(const void *addr)
{
	__u64 entry = mo_pagemap(addr);

	return entry & pm_present ? entry & pm_frame : 0;
}

int mo_exchange_frames(__u64 a, __u64 b)
{
	char text[64];

	snprintf(text, sizeof(text), "%llu %llu\n", (unsigned long long)a,
		 (unsigned long long)b);
	return mo_try_write(PATH_EXCHANGE, text);
}

int mo_exchange(const void *a, const void *b)
{
	int tries, rc = -EAGAIN;

	for (tries = 0; tries < TRIES; tries++) {
		__u64 of_a = mo_frame(a), of_b = mo_frame(b);

		if (of_a && of_b)
			rc = mo_exchange_frames(of_a, of_b);
		if (rc != -EAGAIN && rc != -EBUSY)
			break;
		usleep(TRY_US);
	}
	return rc;
}

void mo_pair_exchange(const struct mo_pair *pair)
{
	size_t i;
	int rc;

	for (i = 0; i < pair->a.bytes; i += pair->a.folio_bytes) {
		rc = mo_exchange(pair->a.mem + i, pair->b.mem + i);
		if (rc)
			mo_die("cannot exchange the folios at byte %zu: %s", i,
			       strerror(-rc));
	}
}

bool mo_pair_is_on(const struct mo_pair *pair, int first, int second)
{
	unsigned long a = mo_elsewhere(&pair->a, first);
	unsigned long b = mo_elsewhere(&pair->b, second);

	if (a || b)
		printf("# %lu pages are not on node %d, and %lu not on node %d\n",
		       a, first, b, second);
	return !a && !b;
}

int mo_pair_verdict(const struct mo_pair *pair)
{
	int result = mo_verdict(&pair->a);

	return mo_verdict(&pair->b) == RIGHT ? result : DAMAGED;
}
