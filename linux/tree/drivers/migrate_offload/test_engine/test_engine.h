/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the engine that misbehaves share. */
#ifndef _MIGRATE_OFFLOAD_TEST_ENGINE_H
#define _MIGRATE_OFFLOAD_TEST_ENGINE_H

#include <linux/atomic.h>
#include <linux/migrate_copy_offload.h>
#include <linux/types.h>

struct dentry;

/* Switches and counters that both modes have, see the files in debugfs. */
extern bool test_decline;
extern u32 test_delay_us;
extern atomic_t test_batches;
extern atomic_t test_in_copy;

/* What becomes of a folio: 1 to copy it, 0 to say it was, or an error. */
int test_look_at(struct folio *src);
/* Give up on this one, as on a device that cannot be stopped? */
bool test_wants_hold(void);
void test_hold(struct migrate_copy_pair *pair);

/* One pair was copied, and nobody knows yet: for the holders of references. */
void test_pair_copied(struct folio *src, bool first, bool of_many);
/* All of a batch was copied. */
void test_batch_copied(void);

/* The mode that streams. */
extern const struct migrate_engine_ops test_stream_engine;
void test_stream_create_files(struct dentry *dir);
int test_stream_init(void);
void test_stream_exit(void);

/* A disk that does not answer. */
void test_writeback_create_files(struct dentry *dir);

/* Somebody who wants physical memory. */
#ifdef CONFIG_CONTIG_ALLOC
void test_contig_create_files(struct dentry *dir);
#else
static inline void test_contig_create_files(struct dentry *dir)
{
}
#endif

#endif /* _MIGRATE_OFFLOAD_TEST_ENGINE_H */
