/* SPDX-License-Identifier: GPL-2.0-only */
/* Shared by the parts of the test engine. */
#ifndef _MIGRATE_OFFLOAD_TEST_ENGINE_H
#define _MIGRATE_OFFLOAD_TEST_ENGINE_H

#include <linux/atomic.h>
#include <linux/migrate_copy_offload.h>
#include <linux/types.h>

struct dentry;

/* Switches and counters of both modes, see the files in debugfs. */
extern bool test_decline;
extern u32 test_delay_us;
extern atomic_t test_batches;
extern atomic_t test_in_copy;

/* The fate of a folio: 1: copy it, 0: only claim that, or an error. */
int test_look_at(struct folio *src);
/*
 * Should the engine give up on this folio, as if its device cannot be stopped?
 */
bool test_wants_hold(void);
void test_hold(struct migrate_copy_pair *pair);

/*
 * Called after a pair is copied, before it is reported, for reference holders.
 */
void test_pair_copied(struct folio *src, bool first, bool of_many);
/* Called after the whole batch is copied. */
void test_batch_copied(void);

/* The streaming mode. */
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
