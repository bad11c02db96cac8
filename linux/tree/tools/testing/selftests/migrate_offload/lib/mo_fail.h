/* SPDX-License-Identifier: GPL-2.0-only */
/* Nodes on which the kernel finds no large folio. */
#ifndef MO_FAIL_H
#define MO_FAIL_H

#define MO_64K_ORDER 4
#define MO_2M_ORDER 9

/*
 * Let each allocation of 2^@min_order pages or more fail, on all nodes and in
 * all tasks.  A node that is really full does not stay full: reclaim and
 * compaction make a large block now and then.  Returns NULL, or the reason.
 */
const char *mo_fail_large(unsigned int min_order);
void mo_fail_end(void);

#endif /* MO_FAIL_H */
