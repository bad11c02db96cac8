// SPDX-License-Identifier: GPL-2.0-only
/*
 * The engine or the CPU: the one that moves lists of folios sooner.
 *
 * Lists are told apart by the reason to migrate, by the size of their folios, and
 * by how much there is.  For each kind the time of whole lists is kept, from the
 * first folio that is unmapped to the last one that is moved: for those that were
 * the engine's, and for those that the CPU copied without any engine.  The engine
 * gets a list if it needs less than 15/16 of the CPU's time for a page.
 *
 * The side that costs more is tried again for 1/64 of the time that the other side
 * takes.  The time of a try is what counts: the more it costs, the longer it takes
 * until the next one.
 *
 * Times are those of the clock on the wall.  An engine that makes the task sleep has
 * it wait for a CPU afterwards, and that is part of its cost.  A mean over a second
 * of work smoothes what other tasks and the host add.
 */

#include <linux/hugetlb.h>
#include <linux/kobject.h>
#include <linux/ktime.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "../internal.h"
#include "hooks.h"
#include "internal.h"

/* The engine has to need less than 15/16 of the CPU's time. */
#define MIGRATE_CHOICE_MARGIN 16

/* The side that costs more has 1/64 of the time. */
#define MIGRATE_CHOICE_TRIES 64

/* Means are over the last second of work, or up to two. */
#define MIGRATE_CHOICE_MEAN_NS (1U * NSEC_PER_SEC)

/* Nothing is decided before both sides have worked for so long: 62 ms. */
#define MIGRATE_CHOICE_KNOWN_NS (MIGRATE_CHOICE_MEAN_NS / 16)

/* A list counts for no longer than this, so that sums fit into 32 bits. */
#define MIGRATE_CHOICE_MOST_NS (2U * NSEC_PER_SEC)

/* For a try that took longer than this, nobody waits more than for one that did. */
#define MIGRATE_CHOICE_DEBT_NS min_t(s64, 10 * (s64)NSEC_PER_SEC, LONG_MAX)

/* Kinds of lists: some pages, less than a batch of stock Linux, and more. */
#define MIGRATE_CHOICE_FEW_BYTES SZ_128K
#define MIGRATE_CHOICE_MANY_BYTES SZ_2M

unsigned int migrate_engine_always;

static unsigned int migrate_choice_index(int reason, unsigned int order,
					 size_t bytes)
{
	unsigned int size = min(DIV_ROUND_UP(order, 3), MIGRATE_NR_SIZES - 1U);
	unsigned int length = (bytes >= MIGRATE_CHOICE_FEW_BYTES) +
			      (bytes >= MIGRATE_CHOICE_MANY_BYTES);

	return (reason * MIGRATE_NR_SIZES + size) * MIGRATE_NR_LENGTHS + length;
}

static struct migrate_choice *
migrate_choice_of(const struct migrate_engine *engine, int reason,
		  unsigned int order, size_t bytes)
{
	return &migrate_engine_stats(engine)->choices
			[migrate_choice_index(reason, order, bytes)];
}

static bool migrate_choice_is_known(const struct migrate_choice *choice)
{
	return min(READ_ONCE(choice->engine.ns), READ_ONCE(choice->cpu.ns)) >=
		MIGRATE_CHOICE_KNOWN_NS;
}

/* Does the engine need so much less time for a page that it is to be used? */
static bool migrate_choice_pays(const struct migrate_choice *choice)
{
	u64 engine = (u64)READ_ONCE(choice->engine.ns) *
		     READ_ONCE(choice->cpu.pages);
	u64 cpu = (u64)READ_ONCE(choice->cpu.ns) *
		  READ_ONCE(choice->engine.pages);

	return engine < cpu - cpu / MIGRATE_CHOICE_MARGIN;
}

/* How long does the CPU take for a folio of this order?  0: not known. */
static u64 migrate_choice_cpu_ns(const struct migrate_choice *choice,
				 unsigned int order)
{
	u64 ns = (u64)READ_ONCE(choice->cpu.ns) << order;

	return div_u64(ns, max(READ_ONCE(choice->cpu.pages), 1U));
}

/* Decide whether the engine or the CPU gets the next list. */
static void migrate_choice_pick(struct migrate_choice *choice,
				struct migrate_attempt *attempt)
{
	attempt->choice = choice;
	/* Begin with whoever has worked less. */
	attempt->on_credit = false;
	attempt->by_cpu = READ_ONCE(choice->engine.ns) >
			  READ_ONCE(choice->cpu.ns);
	if (!migrate_choice_is_known(choice))
		return;
	attempt->on_credit = READ_ONCE(choice->credit_ns) >= 0;
	/* On credit it is the side that costs more. */
	attempt->by_cpu = migrate_choice_pays(choice) == attempt->on_credit;
}

static void migrate_cost_add(struct migrate_cost *cost, unsigned int ns,
			     unsigned int pages)
{
	unsigned int half;

	ns += READ_ONCE(cost->ns);
	pages += READ_ONCE(cost->pages);
	half = ns > MIGRATE_CHOICE_MEAN_NS;
	WRITE_ONCE(cost->ns, ns >> half);
	WRITE_ONCE(cost->pages, pages >> half);
}

/* The side that costs more worked for so long, or the other one did. */
static void migrate_choice_credit(struct migrate_choice *choice, bool on_credit,
				  s64 ns)
{
	s64 credit = READ_ONCE(choice->credit_ns);

	credit += on_credit ? -ns : div_s64(ns, MIGRATE_CHOICE_TRIES);
	/* What is not used at once is no right to several tries in a row. */
	WRITE_ONCE(choice->credit_ns,
		   clamp_t(s64, credit, -MIGRATE_CHOICE_DEBT_NS, 0));
}

/* A list took so long, and so many of its pages were moved. */
static void migrate_choice_note(struct migrate_choice *choice,
				const struct migrate_attempt *attempt, u64 ns,
				unsigned int pages)
{
	ns = min(ns, (u64)S64_MAX / 2);
	migrate_cost_add(attempt->by_cpu ? &choice->cpu : &choice->engine,
			 min(ns, MIGRATE_CHOICE_MOST_NS), pages);
	migrate_choice_credit(choice, attempt->on_credit, ns);
}

/*
 * A list begins, with folios of @order, that the engine would take.  Who is to have it?
 */
void migrate_choose(struct migrate_attempt *attempt,
		    const struct migrate_engine *engine, int reason,
		    unsigned int order, size_t bytes)
{
	if (READ_ONCE(migrate_engine_always))
		return;
	migrate_choice_pick(migrate_choice_of(engine, reason, order, bytes),
			    attempt);
	attempt->start_ns = ktime_get_ns();
}

/* Its last folio is moved. */
void migrate_attempt_end(struct migrate_attempt *attempt, unsigned int pages)
{
	migrate_choice_note(attempt->choice, attempt,
			    ktime_get_ns() - attempt->start_ns, pages);
	attempt->choice = NULL;
}

/*
 * Would the engine get a list like that?  For those who make lists longer if it does.
 * While it does not there are no such lists, and what they would take gives the engine
 * its next try.
 */
bool migrate_engine_pays(const struct migrate_engine *engine, int reason,
			 unsigned int order, size_t bytes)
{
	struct migrate_choice *choice;
	u64 ns;

	if (READ_ONCE(migrate_engine_always))
		return true;
	choice = migrate_choice_of(engine, reason, order, bytes);
	if (!migrate_choice_is_known(choice) || migrate_choice_pays(choice) ||
	    READ_ONCE(choice->credit_ns) >= 0)
		return true;
	ns = migrate_choice_cpu_ns(choice, order) *
	     (bytes >> (PAGE_SHIFT + order));
	migrate_choice_credit(choice, false, ns);
	return false;
}

/* Of what folios is the list, and how many bytes are in it?  Counts up to @most. */
static size_t migrate_list_bytes(const struct list_head *from, size_t most,
				 unsigned int *order)
{
	struct folio *folio;
	size_t bytes = 0;

	list_for_each_entry(folio, from, lru) {
		/* They were tried by themselves. */
		if (folio_test_hugetlb(folio))
			continue;
		if (!bytes)
			*order = folio_order(folio);
		bytes += folio_size(folio);
		if (bytes >= most)
			break;
	}
	return bytes;
}

/* Who is to have the list?  Without an answer it is the engine, if that wants it. */
static void migrate_offload_choose(struct migrate_offload_section *section,
				   const struct migrate_engine *engine,
				   const struct list_head *from, int reason)
{
	unsigned int order;
	size_t bytes;

	bytes = migrate_list_bytes(from, SZ_2M, &order);
	if (!bytes || !migrate_engine_wants(engine, NUMA_NO_NODE, bytes))
		return;
	migrate_choose(&section->attempt, engine, reason, order, bytes);
	section->by_cpu = section->attempt.choice && section->attempt.by_cpu;
}

/*
 * How many pages may one call of migrate_pages_batch() get?  With windows any
 * number, as few of them are out of reach at once.  A call that gets them keeps them,
 * whatever is switched off meanwhile.  Without memory for windows, or before there
 * is a pool, all is as with no engine and nobody who measures.
 */
unsigned int __migrate_offload_begin(struct migrate_windows **w,
				     struct migrate_offload_section *section,
				     const struct list_head *from, int reason)
{
	unsigned int max_pages = MIGRATE_STOCK_BATCH_PAGES;
	struct migrate_engine *engine;
	int idx;

	if (!*w)
		*w = migrate_windows_alloc();
	if (!*w)
		return max_pages;
	engine = migrate_engine_enter(reason, &idx);
	if (engine) {
		migrate_offload_choose(section, engine, from, reason);
		/* In windows is only what the engine has, or what a limit is for. */
		if ((!section->by_cpu || migrate_limit_is_fixed()) &&
		    migrate_engine_wants(engine, NUMA_NO_NODE,
					 MIGRATE_WINDOWS_LIST_PAGES << PAGE_SHIFT))
			max_pages = MIGRATE_WINDOWS_LIST_PAGES;
	}
	migrate_engine_exit(idx);
	return max_pages;
}

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/choice_kunit.c"
#endif
