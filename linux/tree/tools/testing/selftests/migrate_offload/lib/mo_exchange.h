/* SPDX-License-Identifier: GPL-2.0-only */
/* Pairs of folios that change places. */
#ifndef MO_EXCHANGE_H
#define MO_EXCHANGE_H

#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

#define PATH_EXCHANGE "/sys/kernel/debug/migrate_exchange"

/* Two areas of one size on two nodes: the first on mo_nodes[0]. */
struct mo_pair {
	struct mo_area a;
	struct mo_area b;
};

/* Returns NULL if folios can be exchanged here, else the reason. */
const char *mo_exchange_cannot(void);
void mo_pair_map(struct mo_pair *pair, size_t bytes, size_t folio_bytes);

/* The frame of a page of this process, or 0 if the page is not mapped now. */
__u64 mo_frame(const void *addr);
/* Exchange the folios that begin at two frames.  Returns 0 or -errno. */
int mo_exchange_frames(__u64 a, __u64 b);
/*
 * Exchange two folios of this process.  Tries again for a while if another task
 * uses one of them.  Returns 0 or -errno.
 */
int mo_exchange(const void *a, const void *b);
/* Exchange all folios. */
void mo_pair_exchange(const struct mo_pair *pair);

/* Returns true if all pages of the first area are on this node. */
bool mo_pair_is_on(const struct mo_pair *pair, int first, int second);
int mo_pair_verdict(const struct mo_pair *pair);

/* exchange_beside.c */
int mo_exchange_written(void);
int mo_exchange_device(void);
int mo_exchange_beside(void);
int mo_exchange_beside_large(void);
int mo_exchange_ended(void);
int mo_exchange_charged(void);

#endif /* MO_EXCHANGE_H */
