// SPDX-License-Identifier: GPL-2.0-only
/*
 * Hazards of hugetlb folios, which move one by one.
 *
 * The rule that a copy holds for one attempt cannot be broken here.  A folio
 * that failed to move is mapped again, and its destination is freed.  The next
 * attempt has another destination.
 */
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_hazard.h"
#include "mo_util.h"

#define NR_FOLIOS 3
#define BYTES (NR_FOLIOS * SZ_2M)
#define PAGES_PER_FOLIO (SZ_2M / SZ_4K)
#define NEVER_MS 3600000

/* Map hugetlb memory.  Returns false with a message if this machine cannot. */
static bool map_huge(struct mo_area *area, enum mo_type type)
{
	const char *why_not = mo_map(area, type, BYTES, SZ_2M);

	if (why_not) {
		printf("# %s\n", why_not);
		mo_unmap(area);
	}
	return !why_not;
}

/* Unmap the memory in any case, so that the pools get their former size. */
static int verdict_of(struct mo_area *area)
{
	int result = mo_verdict(area);

	mo_unmap(area);
	return result;
}

/*
 * The holder of a pin writes after the engine's copy, and drops the pin before
 * the core moves the folio.
 */
static int pin(enum mo_type type)
{
	/* A page of the first folio: the pin ends with the next copy. */
	size_t page = 5;
	struct mo_area area;
	char text[64];
	int fd;

	if (!map_huge(&area, type))
		return SKIPPED;
	snprintf(text, sizeof(text), "%lx 0xa5",
		 (long)(area.mem + page * SZ_4K));
	mo_expect_byte(&area, page, 0xa5);
	mo_select("test");
	fd = mo_hold(PATH_TEST "pin", text);
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	return verdict_of(&area);
}

int mo_run_huge_pin(void)
{
	static const enum mo_type types[] = {
		MO_HUGETLB, MO_HUGETLB_SHARED, MO_HUGETLB_FILE,
	};
	int first = -1, result;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(types); i++) {
		result = pin(types[i]);
		if (first < 0)
			first = result;
		if (result != first)
			mo_die("kind %u of memory ends in %d, not %d", i, result,
			       first);
	}
	return first;
}

/*
 * A reference makes the first attempt to move a folio fail.  The holder of the
 * reference writes before the second attempt.
 */
int mo_run_huge_retry(void)
{
	long long retried = mo_counter("retried_folios");
	struct mo_area area;
	int fd;

	if (!map_huge(&area, MO_HUGETLB))
		return SKIPPED;
	mo_expect_byte(&area, 0, 0x5a);
	mo_select("test");
	fd = mo_hold(PATH_TEST "grab", "0x5a");
	mo_move_once(&area, mo_nodes[1]);
	close(fd);
	if (mo_counter("retried_folios") != retried + 1)
		mo_die("the number of retries is not one");
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("not all folios were moved in the end");
	return verdict_of(&area);
}

/* Move memory while each copy of one page ends as after a machine check. */
static int move_bad_page(const char *engine)
{
	struct mo_area area;
	int result;

	if (!map_huge(&area, MO_HUGETLB_SHARED))
		return SKIPPED;
	mo_select(engine);
	mo_write_number(PATH_DEBUG "bad_pfn",
			mo_pfn(area.mem + SZ_2M) + PAGES_PER_FOLIO / 2);
	mo_move_once(&area, mo_nodes[1]);
	mo_write(PATH_DEBUG "bad_pfn", "0");
	mo_select("none");
	if (mo_elsewhere(&area, mo_nodes[1]) != PAGES_PER_FOLIO)
		mo_die("%s: the folio with the bad page alone had to stay",
		       engine);
	result = verdict_of(&area);
	return result;
}

int mo_run_huge_bad_page(void)
{
	const char *engine;
	int i, result;

	result = move_bad_page("none");
	for (i = 0; !result && (engine = mo_engine(i)); i++)
		result = move_bad_page(engine);
	return result;
}

static long long free_pages(void)
{
	return mo_huge_pages(mo_nodes[1], SZ_2M, "free_hugepages");
}

/*
 * A device that cannot be stopped writes to a destination after the engine gave
 * up.  Until then the destination must not return to the pool, where another
 * task could allocate it.  No task may see the late write.
 */
int mo_run_huge_late(void)
{
	long long writes = mo_read_number(PATH_TEST "late_writes");
	long long before;
	struct mo_area area;

	if (!map_huge(&area, MO_HUGETLB))
		return SKIPPED;
	before = free_pages();
	mo_select("test");
	mo_write_number(PATH_TEST "late_ms", NEVER_MS);
	mo_write_number(PATH_TEST "hold_nth", 2);
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]) == PAGES_PER_FOLIO &&
	    free_pages() != before - NR_FOLIOS)
		mo_die("the destination of a held folio is free");
	mo_write_number(PATH_TEST "late_now", 1);
	mo_wait_for_late_write(writes);
	if (mo_verdict(&area)) {
		mo_unmap(&area);
		return DAMAGED;
	}
	if (mo_elsewhere(&area, mo_nodes[1]) != PAGES_PER_FOLIO)
		mo_die("the number of held folios is not one");
	if (mo_read_number(PATH_OFFLOAD "held_folios") ||
	    free_pages() != before - NR_FOLIOS + 1)
		mo_die("a folio is still held after the device has written");
	mo_move_once(&area, mo_nodes[1]);
	if (mo_elsewhere(&area, mo_nodes[1]))
		mo_die("the formerly held folio cannot be moved");
	return verdict_of(&area);
}
