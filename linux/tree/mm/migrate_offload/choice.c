// SPDX-License-Identifier: GPL-2.0-only
/*
 * Give each list of folios to the faster side: the engine or the CPU.
 *
 * Lists of one kind have the same reason, and similar sizes of folios and of
 * the list.  For each kind the core times whole lists with the engine and with
 * the CPU.  The time runs from the choice until the last folio has moved.  The
 * engine gets a list if it needs less than 15/16 of the CPU's time for a page.
 *
 * The core tries the slower side again for 1/64 of the faster side's time.
 * After an expensive try it takes longer until the next one.
 *
 * Times are elapsed times.  If an engine makes the task sleep, the task then
 * waits for a CPU, and this wait is part of the engine's cost.  A mean over a
 * second of work smooths the influence of other tasks and of the host.
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

/* The engine must need less than 15/16 of the CPU's time. */
#define MIGRATE_CHOICE_MARGIN 16

/* The slower side is tried for 1/64 of the faster side's time. */
#define MIGRATE_CHOICE_TRIES 64

/* Sums above this are halved, so that old lists count less and less. */
#define MIGRATE_CHOICE_MEAN_NS (1U * NSEC_PER_SEC)

/* Both sides are compared once each has worked for this time, 62 ms. */
#define MIGRATE_CHOICE_KNOWN_NS (MIGRATE_CHOICE_MEAN_NS / 16)

/* A list counts at most this time, so that sums fit into 32 bits. */
#define MIGRATE_CHOICE_MOST_NS (2U * NSEC_PER_SEC)

/* The debt of a try is limited to this, so that the next try will come. */
#define MIGRATE_CHOICE_DEBT_NS min_t(s64, 10 * (s64)NSEC_PER_SEC, LONG_MAX)

/*
 * Bounds of short, medium and long lists.  The batches of stock Linux are 2M.
 * Compaction asks for a block of 2M and finds less, so 2M is not a long list.
 */
#define MIGRATE_CHOICE_FEW_BYTES SZ_128K
#define MIGRATE_CHOICE_MANY_BYTES (SZ_2M + 1)

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

/* Does the engine need less than 15/16 of the CPU's time for a page? */
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
	/* Until both sides are known, take the side that has worked less. */
	attempt->on_credit = false;
	attempt->by_cpu = READ_ONCE(choice->engine.ns) >
			  READ_ONCE(choice->cpu.ns);
	if (!migrate_choice_is_known(choice))
		return;
	attempt->on_credit = READ_ONCE(choice->credit_ns) >= 0;
	/* With credit, try the slower side. */
	attempt->by_cpu = migrate_choice_pays(choice) == attempt->on_credit;
}

/* Returns true if the sums were halved. */
static bool migrate_cost_add(struct migrate_cost *cost, unsigned int ns,
			     unsigned int pages)
{
	unsigned int half;

	ns += READ_ONCE(cost->ns);
	pages += READ_ONCE(cost->pages);
	half = ns > MIGRATE_CHOICE_MEAN_NS;
	WRITE_ONCE(cost->ns, ns >> half);
	WRITE_ONCE(cost->pages, pages >> half);
	return half;
}

/*
 * Forget half of the slower side, too, but know enough of it.  Its tries are
 * few.  If all lists become faster, as after load, the sums of its slow tries
 * would keep this side out for a long time.
 */
static void migrate_cost_age(struct migrate_cost *cost)
{
	unsigned int half = READ_ONCE(cost->ns) >= 2 * MIGRATE_CHOICE_KNOWN_NS;

	WRITE_ONCE(cost->ns, READ_ONCE(cost->ns) >> half);
	WRITE_ONCE(cost->pages, READ_ONCE(cost->pages) >> half);
}

/* A try of the slower side uses up credit, and the faster side earns it. */
static void migrate_choice_credit(struct migrate_choice *choice, bool on_credit,
				  s64 ns)
{
	s64 credit = READ_ONCE(choice->credit_ns);

	credit += on_credit ? -ns : div_s64(ns, MIGRATE_CHOICE_TRIES);
	/* Unused credit is lost, so that tries do not follow each other. */
	WRITE_ONCE(choice->credit_ns,
		   clamp_t(s64, credit, -MIGRATE_CHOICE_DEBT_NS, 0));
}

static void migrate_choice_note(struct migrate_choice *choice,
				const struct migrate_attempt *attempt, u64 ns,
				unsigned int pages)
{
	struct migrate_cost *mine, *other;
	u64 noted_ns = min(ns, MIGRATE_CHOICE_MOST_NS);

	mine = attempt->by_cpu ? &choice->cpu : &choice->engine;
	other = attempt->by_cpu ? &choice->engine : &choice->cpu;
	ns = min(ns, (u64)S64_MAX / 2);
	/*
	 * Count only the pages of @noted_ns, or all slow sides would look
	 * alike.
	 */
	if (noted_ns < ns && pages)
		pages = max(mul_u64_u64_div_u64(pages, noted_ns, ns), 1ULL);
	if (migrate_cost_add(mine, noted_ns, pages))
		migrate_cost_age(other);
	migrate_choice_credit(choice, attempt->on_credit, ns);
}

/* Choose the side for a list that the engine wants, with folios of @order. */
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

void migrate_attempt_end(struct migrate_attempt *attempt, unsigned int pages)
{
	migrate_choice_note(attempt->choice, attempt,
			    ktime_get_ns() - attempt->start_ns, pages);
	attempt->choice = NULL;
}

/*
 * Would the engine get this list?  Compaction and demotion ask before they make
 * a list longer than usual.  If the answer is no, the core times no such list.
 * So credit the time that the CPU would need, or the engine would never get its
 * next try.
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

/*
 * Returns the bytes of a list, counted up to @most.  @order gets the order of
 * the first folio.
 */
static size_t migrate_list_bytes(const struct list_head *from, size_t most,
				 unsigned int *order)
{
	struct folio *folio;
	size_t bytes = 0;

	list_for_each_entry(folio, from, lru) {
		/* migrate_hugetlbs() has handled hugetlb folios. */
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

/* Choose the side for a list, unless the engine would decline the list. */
static void migrate_offload_choose(struct migrate_offload_section *section,
				   const struct migrate_engine *engine,
				   const struct list_head *from, int reason)
{
	unsigned int order;
	size_t bytes;

	bytes = migrate_list_bytes(from, MIGRATE_CHOICE_MANY_BYTES, &order);
	if (!bytes || !migrate_engine_wants(engine, NUMA_NO_NODE, bytes))
		return;
	migrate_choose(&section->attempt, engine, reason, order, bytes);
	section->by_cpu = section->attempt.choice && section->attempt.by_cpu;
}

/*
 * Returns how many pages one call of migrate_pages_batch() may get.  A list
 * with windows may be long, as few of its folios are unmapped at once.  The
 * list keeps its windows, even if the engine is deactivated meanwhile.  Without
 * memory for windows, the list is migrated as without an engine.
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
		/* The CPU's lists have windows only if a limit was set. */
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
