/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the test engine share. */
#ifndef _MIGRATE_OFFLOAD_TEST_ENGINE_H
#define _MIGRATE_OFFLOAD_TEST_ENGINE_H

#include <linux/atomic.h>
#include <linux/migrate_copy_offload.h>
#include <linux/types.h>

struct dentry;

/*
 * Switches and counters of all modes.  main.c and stream.c describe the debugfs
 * files that set and show them.
 */
extern bool test_decline;
extern u32 test_delay_us;
extern atomic_t test_batches;
extern atomic_t test_in_copy;

/*
 * Count @src as seen.  Returns 1 if the engine must copy the folio, 0 if it
 * must report a copy without making one, or the error to report.
 */
int test_look_at(struct folio *src);
/*
 * Called once for each folio in the modes that can hold, to count hold_nth down.
 * Returns true if the engine must hold this folio, as for a device that cannot
 * be stopped.
 */
bool test_wants_hold(void);
void test_hold(struct migrate_copy_pair *pair);

/*
 * Called after the copy of a pair, and before its report.  The holders that
 * main.c describes then take, write to, or release @src.
 */
void test_pair_copied(struct folio *src, bool first, bool of_many);
/* Called after the copy of a batch: holders write, and drop references. */
void test_batch_copied(void);

/* Sleep for at least this time of ktime.  A test may change it meanwhile. */
void test_sleep(const u32 *for_us);

/* stream.c: the mode that copies batches side by side. */
extern const struct migrate_engine_ops test_stream_engine;
void test_stream_create_files(struct dentry *dir);
int test_stream_init(void);
void test_stream_exit(void);

/* writeback.c: a disk that does not answer. */
void test_writeback_create_files(struct dentry *dir);

/* contig.c: a caller that needs physical memory in one piece. */
#ifdef CONFIG_CONTIG_ALLOC
void test_contig_create_files(struct dentry *dir);
#else
static inline void test_contig_create_files(struct dentry *dir)
{
}
#endif

#endif /* _MIGRATE_OFFLOAD_TEST_ENGINE_H */
