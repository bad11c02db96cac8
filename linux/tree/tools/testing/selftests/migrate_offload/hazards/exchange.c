// SPDX-License-Identifier: GPL-2.0-only
/*
 * Checks of exchanges: two folios change places, or both stay.
 *
 * Cases are as in hazards.c: with all rules the content must be right, and with
 * its own rule off the damage must show.  For options see mo_hazard.c.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_exchange.h"
#include "mo_hazard.h"
#include "mo_run.h"
#include "mo_uring.h"

#define PAGES 16
#define FOLIO_PAGES 16
#define FOLIO_BYTES (FOLIO_PAGES * SZ_4K)
/* A page in the middle of a folio. */
#define MIDDLE 5

static int there_and_back(const struct mo_pair *pair)
{
	size_t pages = (pair->a.bytes + pair->b.bytes) / SZ_4K;
	long long moved = mo_vm_counter("pgmigrate_success");
	int result, trip;
	size_t i;

	for (trip = 1; trip >= 0; trip--) {
		mo_pair_exchange(pair);
		if (!mo_pair_is_on(pair, mo_nodes[trip], mo_nodes[!trip]))
			return DAMAGED;
		result = mo_pair_verdict(pair);
		if (result)
			return result;
		for (i = 0; i < pair->a.bytes; i += pair->a.folio_bytes)
			if (pair->a.folio_bytes > SZ_4K &&
			    !mo_page_flag(pair->a.mem + i, KPF_COMPOUND_HEAD))
				mo_die("the exchange has split a folio");
	}
	moved = mo_vm_counter("pgmigrate_success") - moved;
	if (moved < 2 * (long long)pages) {
		printf("# %lld pages count as moved\n", moved);
		return DAMAGED;
	}
	return RIGHT;
}

static int exchange_small(void)
{
	struct mo_pair pair;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	return there_and_back(&pair);
}

static int exchange_large(void)
{
	struct mo_pair pair;

	mo_pair_map(&pair, 4 * FOLIO_BYTES, FOLIO_BYTES);
	return there_and_back(&pair);
}

static int exchange_huge(void)
{
	struct mo_pair pair;

	mo_pair_map(&pair, 2 * SZ_2M, SZ_2M);
	return there_and_back(&pair);
}

/* Protecting a part splits the mapping of the whole folio. */
static void map_by_ptes(const struct mo_area *area)
{
	size_t i;

	for (i = 0; i < area->bytes; i += SZ_2M)
		if (mprotect(area->mem + i, SZ_4K, PROT_READ) ||
		    mprotect(area->mem + i, SZ_4K, PROT_READ | PROT_WRITE))
			mo_die("mprotect: %m");
}

/* The two owners map their folios in different ways. */
static int exchange_huge_by_ptes(void)
{
	struct mo_pair pair;

	mo_pair_map(&pair, 2 * SZ_2M, SZ_2M);
	map_by_ptes(&pair.a);
	return there_and_back(&pair);
}

/* Without batch_ptes, entries are unmapped one by one. */
static int exchange_one_by_one(void)
{
	struct mo_pair pair;

	mo_pair_map(&pair, 4 * FOLIO_BYTES, FOLIO_BYTES);
	if (!mo_exists(PATH_OFFLOAD "batch_ptes"))
		return mo_skip("no CONFIG_MIGRATE_BATCH_PTES");
	mo_run_batch(false);
	mo_pair_exchange(&pair);
	mo_run_batch(true);
	if (!mo_pair_is_on(&pair, mo_nodes[1], mo_nodes[0]))
		return DAMAGED;
	return mo_pair_verdict(&pair);
}

/* A part of the first owner's folio is not mapped. */
static int exchange_partial(void)
{
	struct mo_pair pair;
	size_t i;

	mo_pair_map(&pair, FOLIO_BYTES, FOLIO_BYTES);
	for (i = MIDDLE; i < FOLIO_PAGES; i++)
		mo_expect_byte(&pair.a, i, 0);
	if (madvise(pair.a.mem + MIDDLE * SZ_4K,
		    (FOLIO_PAGES - MIDDLE) * SZ_4K, MADV_DONTNEED))
		mo_die("madvise: %m");
	if (mo_exchange(pair.a.mem, pair.b.mem))
		mo_die("cannot exchange a folio that is partially mapped");
	/* No page of the second owner may also be a page of the first. */
	memcpy(pair.b.mem, pair.b.shadow, pair.b.bytes);
	return mo_pair_verdict(&pair);
}

/* Two processes map all pages of both owners. */
static int exchange_shared(void)
{
	struct mo_pair pair;
	struct mo_kin kin;
	int result;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	mo_kin_start(&kin, &pair.a);
	mo_pair_exchange(&pair);
	if (mo_run_dangles(getpid(), &pair.a) || mo_run_dangles(kin.pid, &pair.a))
		mo_stay();
	result = mo_pair_verdict(&pair);
	/* A page that came back exclusive would change for the child, too. */
	memset(pair.a.mem, 0x77, pair.a.bytes);
	memset(pair.b.mem, 0x66, pair.b.bytes);
	if (!result)
		result = mo_kin_ask(&kin, KIN_CHECKS);
	mo_kin_end(&kin);
	return result;
}

/* Exclusive pages stay so, and pages that were shared do not become so. */
static int exchange_exclusive(void)
{
	struct mo_pair pair;
	struct mo_kin kin;
	size_t i, nr = 0;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	mo_kin_start(&kin, &pair.a);
	mo_kin_end(&kin);
	/* A write makes a page of one process exclusive again. */
	memcpy(pair.b.mem, pair.b.shadow, pair.b.bytes);
	if (mo_move(&pair.b, mo_nodes[1]))
		mo_die("cannot move pages to the second node");
	mo_pair_exchange(&pair);
	for (i = 0; i < pair.a.bytes; i += SZ_4K) {
		nr += mo_is_exclusive(pair.a.mem + i);
		nr += !mo_is_exclusive(pair.b.mem + i);
	}
	if (nr)
		printf("# %zu pages have the mark of the other owner\n", nr);
	return nr ? DAMAGED : mo_pair_verdict(&pair);
}

/* A pipe holds a reference to a page.  Its reader must get the old content. */
static int exchange_spliced(void)
{
	char *page, seen[SZ_4K];
	struct iovec part = { .iov_len = SZ_4K };
	struct mo_pair pair;
	int fds[2];

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	page = pair.a.mem + MIDDLE * SZ_4K;
	part.iov_base = page;
	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	mo_exchange(page, pair.b.mem);
	if (read(fds[0], seen, SZ_4K) != SZ_4K)
		mo_die("cannot read from a pipe: %m");
	if (memcmp(seen, (char *)pair.a.shadow + MIDDLE * SZ_4K, SZ_4K)) {
		printf("# the pipe has the page of the other owner\n");
		return DAMAGED;
	}
	close(fds[0]);
	close(fds[1]);
	if (!mo_pair_is_on(&pair, mo_nodes[0], mo_nodes[1]))
		return DAMAGED;
	mo_pair_exchange(&pair);
	return mo_pair_verdict(&pair);
}

/* A device writes to a pinned page, which must not move. */
static int exchange_pinned(void)
{
	struct mo_uring *ring = mo_uring_open();
	struct mo_pair pair;
	char *page;
	int rc;

	if (!ring)
		return mo_skip("no io_uring");
	mo_pair_map(&pair, FOLIO_BYTES, FOLIO_BYTES);
	page = pair.a.mem + MIDDLE * SZ_4K;
	if (!mo_uring_register(ring, page, SZ_4K))
		mo_die("cannot pin a page: %m");
	rc = mo_exchange(pair.a.mem, pair.b.mem);
	if (rc != -EAGAIN) {
		printf("# an exchange of a pinned folio returned %d\n", rc);
		return DAMAGED;
	}
	if (!mo_pair_is_on(&pair, mo_nodes[0], mo_nodes[1]))
		return DAMAGED;
	rc = mo_uring_device_writes(&pair.a, ring, MIDDLE);
	return rc ?: mo_pair_verdict(&pair);
}

/* A page in the middle of one folio cannot be read.  Then both stay. */
static int bad_page(bool of_second)
{
	struct mo_pair pair;
	char *page;
	int rc;

	mo_pair_map(&pair, FOLIO_BYTES, FOLIO_BYTES);
	page = (of_second ? pair.b.mem : pair.a.mem) + MIDDLE * SZ_4K;
	mo_write_number(PATH_DEBUG "bad_pfn", mo_pfn(page));
	rc = mo_exchange(pair.a.mem, pair.b.mem);
	mo_write_number(PATH_DEBUG "bad_pfn", 0);
	if (rc != -EHWPOISON)
		mo_die("an exchange with a bad page returned %d", rc);
	if (!mo_pair_is_on(&pair, mo_nodes[0], mo_nodes[1]))
		return DAMAGED;
	rc = mo_pair_verdict(&pair);
	return rc ?: there_and_back(&pair);
}

static int exchange_bad_first(void)
{
	return bad_page(false);
}

static int exchange_bad_second(void)
{
	return bad_page(true);
}

/*
 * A folio has a poisoned page that the kernel could not split off.  No other
 * owner may get this page.
 */
static int exchange_poisoned(void)
{
	struct iovec part = { .iov_len = SZ_4K };
	struct mo_pair pair;
	int fds[2], rc;
	size_t i;

	mo_pair_map(&pair, FOLIO_BYTES, FOLIO_BYTES);
	/* A reference keeps the kernel from splitting the folio. */
	part.iov_base = pair.a.mem;
	if (pipe(fds) || vmsplice(fds[1], &part, 1, 0) != SZ_4K)
		mo_die("cannot splice a page: %m");
	mo_poison(pair.a.mem + MIDDLE * SZ_4K);
	close(fds[0]);
	close(fds[1]);
	if (!mo_page_flag(pair.a.mem, KPF_COMPOUND_HEAD))
		mo_die("no folio is poisoned");
	rc = mo_exchange(pair.a.mem, pair.b.mem);
	for (i = 0; i < pair.b.bytes; i += SZ_4K) {
		if (!mo_page_flag(pair.b.mem + i, KPF_HWPOISON))
			continue;
		printf("# page %zu has a poisoned place\n", i / SZ_4K);
		return DAMAGED;
	}
	if (rc != -EHWPOISON)
		mo_die("an exchange with a poisoned page returned %d", rc);
	return mo_verdict(&pair.b);
}

/* Bits of both owners go with them. */
static int exchange_bits(void)
{
	__u64 before_a[RUN_PAGES], before_b[RUN_PAGES], after[RUN_PAGES];
	struct mo_pair pair;
	size_t i, nr, stayed = 0;
	int rc;

	mo_pair_map(&pair, RUN_PAGES * SZ_4K, SZ_4K);
	mo_run_vary(&pair.a);
	/* Flags of pages in the batches of CPUs still change. */
	mo_drain();
	mo_run_look(&pair.a, before_a);
	mo_run_look(&pair.b, before_b);
	/* Bits of neighbours differ, so each page gets another one's place. */
	for (i = 0; i < RUN_PAGES; i++) {
		rc = mo_exchange(pair.a.mem + i * SZ_4K,
				 pair.b.mem + (RUN_PAGES - 1 - i) * SZ_4K);
		/* The kernel may free these pages instead of swapping them. */
		if (rc == -EOPNOTSUPP &&
		    !(before_a[i] & 1ULL << KPF_SWAPBACKED))
			stayed++;
		else if (rc)
			mo_die("cannot exchange page %zu: %s", i, strerror(-rc));
	}
	/* Unmapping moves the dirty bit of an entry to the page. */
	mo_run_look(&pair.a, after);
	nr = mo_run_changed("before", after, before_a, ~(1ULL << KPF_DIRTY));
	mo_run_look(&pair.b, after);
	nr += mo_run_changed("before", after, before_b, ~(1ULL << KPF_DIRTY));
	if (mo_elsewhere(&pair.a, mo_nodes[1]) != stayed)
		mo_die("not all pages were exchanged");
	return nr ? DAMAGED : mo_pair_verdict(&pair);
}

/* Returns RIGHT if the exchange is refused, and both stay. */
static int refused(const char *what, struct mo_pair *pair, int expected)
{
	int rc = mo_exchange(pair->a.mem, pair->b.mem);

	if (rc == expected &&
	    mo_pair_is_on(pair, mo_nodes[0], mo_nodes[1]))
		return mo_pair_verdict(pair);
	printf("# an exchange with %s returned %d\n", what, rc);
	return DAMAGED;
}

/* Each kind of memory that is not eligible stays where it is. */
static int exchange_refused(void)
{
	static const struct {
		const char *name;
		enum mo_type type;
		size_t folio_bytes;
		int expected;
	} kinds[] = {
		{ "mlocked memory", MO_MLOCKED, SZ_4K, -EOPNOTSUPP },
		{ "shmem", MO_SHMEM, SZ_4K, -EOPNOTSUPP },
		{ "a file", MO_EXT4, SZ_4K, -EOPNOTSUPP },
		{ "KSM", MO_KSM, SZ_4K, -EOPNOTSUPP },
		{ "the swap cache", MO_SWAPCACHE, SZ_4K, -EOPNOTSUPP },
		{ "another size", MO_ANON, FOLIO_BYTES, -EINVAL },
	};
	struct mo_pair pair;
	unsigned int i;
	int result = RIGHT;

	mo_map_anon(&pair.b, PAGES * SZ_4K, SZ_4K);
	if (mo_move(&pair.b, mo_nodes[1]))
		mo_die("cannot move pages to the second node");
	for (i = 0; i < ARRAY_SIZE(kinds) && !result; i++) {
		const char *why_not = mo_map(&pair.a, kinds[i].type,
					     PAGES * SZ_4K, kinds[i].folio_bytes);

		if (why_not)
			mo_die("%s: %s", kinds[i].name, why_not);
		result = refused(kinds[i].name, &pair, kinds[i].expected);
		mo_unmap(&pair.a);
	}
	return result;
}

/* The file refuses what is not two folios. */
static int exchange_arguments(void)
{
	static const char *const wrong[] = { "1", "x 1", "1 2 3", "-1 2" };
	struct mo_pair pair;
	unsigned int i;
	int rc;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	for (i = 0; i < ARRAY_SIZE(wrong); i++) {
		rc = mo_try_write(PATH_EXCHANGE, wrong[i]);
		if (rc != -EINVAL)
			mo_die("\"%s\" returned %d", wrong[i], rc);
	}
	rc = mo_exchange_frames(mo_pfn(pair.a.mem), 1ULL << 40);
	if (rc != -ENXIO)
		mo_die("no page frame returned %d", rc);
	rc = mo_exchange(pair.a.mem, pair.a.mem);
	if (rc != -EBUSY)
		mo_die("one folio returned %d", rc);
	return there_and_back(&pair);
}

static const struct mo_hazard hazards[] = {
	{ .name = "small", .run = exchange_small },
	{ .name = "large", .run = exchange_large },
	{ .name = "huge", .run = exchange_huge },
	{ .name = "huge_by_ptes", .run = exchange_huge_by_ptes },
	{ .name = "one_by_one", .run = exchange_one_by_one },
	{ .name = "partial", .run = exchange_partial },
	{ .name = "shared", .run = exchange_shared },
	{ .name = "exclusive", .run = exchange_exclusive },
	{ .name = "spliced", .rule = "exchange_pin", .run = exchange_spliced },
	{ .name = "pinned", .run = exchange_pinned },
	{ .name = "bad_first", .rule = "exchange_undo",
	  .run = exchange_bad_first },
	{ .name = "bad_second", .rule = "exchange_undo",
	  .run = exchange_bad_second },
	{ .name = "poisoned", .rule = "exchange_poison",
	  .run = exchange_poisoned },
	{ .name = "bits", .run = exchange_bits },
	{ .name = "refused", .run = exchange_refused },
	{ .name = "arguments", .run = exchange_arguments },
	{ .name = "written", .rule = "exchange_flush",
	  .run = mo_exchange_written },
	{ .name = "device", .run = mo_exchange_device },
	{ .name = "beside", .run = mo_exchange_beside },
	{ .name = "beside_large", .run = mo_exchange_beside_large },
	{ .name = "ended", .run = mo_exchange_ended },
	{ .name = "charged", .run = mo_exchange_charged },
};

int main(int argc, char **argv)
{
	return mo_hazards_main(hazards, ARRAY_SIZE(hazards), mo_exchange_cannot,
			       argc, argv);
}
