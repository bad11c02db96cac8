// SPDX-License-Identifier: GPL-2.0-only
/*
 * The routine that copies large folios: of the administrator, or the fastest.
 *
 * The core times all routines once, when the system has booted.  Memory that
 * migrates is rarely in a cache, so the timed memory is flushed first.  It lies
 * on two nodes if there are two, and the result holds for all nodes.
 */

#include <linux/cacheflush.h>
#include <linux/cpufeature.h>
#include <linux/gfp.h>
#include <linux/init.h>
#include <linux/jump_label.h>
#include <linux/kobject.h>
#include <linux/ktime.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/mutex.h>
#include <linux/nodemask.h>
#include <linux/preempt.h>
#include <linux/sizes.h>
#include <linux/string.h>
#include <linux/sysfs.h>
#include <linux/topology.h>

#include "copy.h"

/* pageferry's bench/copy.c copies as much for its rows "boot". */
#define MIGRATE_COPY_TIMED_BYTES SZ_512K

/* Each routine copies so often.  The first time does not count. */
#define MIGRATE_COPY_TIMES 4

/* Another routine must need less than 15/16 of the time of "pages". */
#define MIGRATE_COPY_MARGIN 16

/* The most time to measure, so that a slow machine boots soon. */
#define MIGRATE_COPY_BUDGET_NS (4 * NSEC_PER_MSEC)

enum migrate_copy_routine migrate_copy_routine __read_mostly;
DEFINE_STATIC_KEY_FALSE(migrate_copy_key);

/* A setting that is no routine: the fastest one. */
#define MIGRATE_COPY_AUTO NR_MIGRATE_COPY_ROUTINES

static const char * const migrate_copy_names[NR_MIGRATE_COPY_ROUTINES + 1] = {
	[MIGRATE_COPY_PAGES]		= "pages",
	[MIGRATE_COPY_NONTEMPORAL]	= "nontemporal",
	[MIGRATE_COPY_DIRECT]		= "direct",
	[MIGRATE_COPY_AUTO]		= "auto",
};

/* Protects the setting, and serialises changes of the routine. */
static DEFINE_MUTEX(migrate_copy_lock);
static unsigned int migrate_copy_setting = MIGRATE_COPY_AUTO;

/* The result of the measurement at boot.  Times are of the shortest copy. */
static u64 migrate_copy_ns[NR_MIGRATE_COPY_ROUTINES] __ro_after_init;
static u64 migrate_copy_took_us __ro_after_init;
static const char *migrate_copy_missing __ro_after_init;

/* Does this machine have the routine? */
bool migrate_copy_has(enum migrate_copy_routine routine)
{
	return routine != MIGRATE_COPY_DIRECT ||
		boot_cpu_has(X86_FEATURE_MOVDIR64B);
}

/* The caller holds migrate_copy_lock, or is a test. */
void migrate_copy_use(enum migrate_copy_routine routine)
{
	WRITE_ONCE(migrate_copy_routine, routine);
	if (routine == MIGRATE_COPY_PAGES)
		static_branch_disable(&migrate_copy_key);
	else
		static_branch_enable(&migrate_copy_key);
}

/* Returns the routine with the shortest of the times, which are 0 if unknown. */
static enum migrate_copy_routine migrate_copy_fastest(const u64 *ns)
{
	enum migrate_copy_routine best = MIGRATE_COPY_PAGES, routine;
	/* Noise must not replace the routine of stock Linux. */
	u64 best_ns = ns[best] - ns[best] / MIGRATE_COPY_MARGIN;

	for (routine = 0; routine < NR_MIGRATE_COPY_ROUTINES; routine++) {
		if (!ns[routine] || ns[routine] >= best_ns)
			continue;
		best = routine;
		best_ns = ns[routine];
	}
	return best;
}

/* The caller holds migrate_copy_lock. */
static void migrate_copy_set(unsigned int setting)
{
	WRITE_ONCE(migrate_copy_setting, setting);
	migrate_copy_use(setting == MIGRATE_COPY_AUTO ?
			 migrate_copy_fastest(migrate_copy_ns) : setting);
}

/* Time a copy of cold memory.  Returns 0 if the memory cannot be read. */
static u64 __init migrate_copy_time_ns(enum migrate_copy_routine routine,
				       struct folio *dst, struct folio *src)
{
	u64 start_ns, ns;
	int rc;

	clflush_cache_range(folio_address(src), MIGRATE_COPY_TIMED_BYTES);
	clflush_cache_range(folio_address(dst), MIGRATE_COPY_TIMED_BYTES);
	preempt_disable();
	start_ns = ktime_get_ns();
	rc = migrate_copy_by(routine, dst, src, 0, MIGRATE_COPY_TIMED_BYTES,
			     false);
	ns = ktime_get_ns() - start_ns;
	preempt_enable();
	return rc ? 0 : ns;
}

/*
 * Let the routines take turns, and keep the shortest time of each: an interrupt
 * or the host of a virtual machine can only delay a copy.  The first turns do
 * not count, because a host may have to find the memory.
 *
 * Returns NULL, or why there are no times.
 */
static const char * __init migrate_copy_measure(struct folio *dst,
						struct folio *src)
{
	u64 start_ns = ktime_get_ns(), now_ns = start_ns, turns_ns = 0;
	enum migrate_copy_routine routine;
	unsigned int i;

	for (i = 0; i < MIGRATE_COPY_TIMES; i++) {
		/* The next turns would take as long as the last ones. */
		if (now_ns + turns_ns > start_ns + MIGRATE_COPY_BUDGET_NS)
			break;
		for (routine = 0; routine < NR_MIGRATE_COPY_ROUTINES; routine++) {
			u64 ns;

			if (!migrate_copy_has(routine))
				continue;
			ns = migrate_copy_time_ns(routine, dst, src);
			if (!ns)
				return "poison";
			if (i)
				migrate_copy_ns[routine] =
					min_not_zero(migrate_copy_ns[routine], ns);
		}
		turns_ns = ktime_get_ns() - now_ns;
		now_ns += turns_ns;
	}
	migrate_copy_took_us = div_u64(now_ns - start_ns, NSEC_PER_USEC);
	return i > 1 ? NULL : "no_time";
}

/* Take only memory that is free: the choice is not worth any reclaim. */
static struct folio * __init migrate_copy_alloc(int nid)
{
	return __folio_alloc_node(GFP_TRANSHUGE_LIGHT | __GFP_THISNODE,
				  get_order(MIGRATE_COPY_TIMED_BYTES), nid);
}

static int __init migrate_copy_init(void)
{
	int nid = numa_mem_id(), other = next_node_in(nid, node_states[N_MEMORY]);
	struct folio *src = migrate_copy_alloc(nid);
	struct folio *dst = migrate_copy_alloc(other);

	migrate_copy_missing = "no_memory";
	if (src && dst)
		migrate_copy_missing = migrate_copy_measure(dst, src);
	/* No choice from half of a measurement. */
	if (migrate_copy_missing)
		memset(migrate_copy_ns, 0, sizeof(migrate_copy_ns));
	if (src)
		folio_put(src);
	if (dst)
		folio_put(dst);
	mutex_lock(&migrate_copy_lock);
	migrate_copy_set(MIGRATE_COPY_AUTO);
	mutex_unlock(&migrate_copy_lock);
	return 0;
}
late_initcall(migrate_copy_init);

static ssize_t copy_routine_show(struct kobject *kobj,
				 struct kobj_attribute *attr, char *buf)
{
	return sysfs_emit(buf, "%s\n",
			  migrate_copy_names[READ_ONCE(migrate_copy_setting)]);
}

static ssize_t copy_routine_store(struct kobject *kobj,
				  struct kobj_attribute *attr,
				  const char *buf, size_t count)
{
	int setting = sysfs_match_string(migrate_copy_names, buf);

	if (setting < 0)
		return setting;
	if (!migrate_copy_has(setting))
		return -EOPNOTSUPP;
	mutex_lock(&migrate_copy_lock);
	migrate_copy_set(setting);
	mutex_unlock(&migrate_copy_lock);
	return count;
}

struct kobj_attribute migrate_copy_routine_attr = __ATTR_RW(copy_routine);

static ssize_t copy_routine_reason_show(struct kobject *kobj,
					struct kobj_attribute *attr, char *buf)
{
	const char *name = migrate_copy_names[READ_ONCE(migrate_copy_routine)];
	enum migrate_copy_routine routine;
	ssize_t at;

	if (READ_ONCE(migrate_copy_setting) != MIGRATE_COPY_AUTO)
		return sysfs_emit(buf, "%s administrator\n", name);
	if (migrate_copy_missing)
		return sysfs_emit(buf, "%s %s\n", name, migrate_copy_missing);
	at = sysfs_emit(buf, "%s measured", name);
	for (routine = 0; routine < NR_MIGRATE_COPY_ROUTINES; routine++) {
		u64 ns = migrate_copy_ns[routine];

		if (ns)
			at += sysfs_emit_at(buf, at, " %s_mb_s=%llu",
					    migrate_copy_names[routine],
					    div64_u64(MIGRATE_COPY_TIMED_BYTES * 1000ULL,
						      ns));
	}
	return at + sysfs_emit_at(buf, at, " took_us=%llu\n", migrate_copy_took_us);
}

struct kobj_attribute migrate_copy_routine_reason_attr =
	__ATTR_RO(copy_routine_reason);

#ifdef CONFIG_MIGRATION_COPY_OFFLOAD_KUNIT_TEST
#include "tests/copy_routine_kunit.c"
#endif
