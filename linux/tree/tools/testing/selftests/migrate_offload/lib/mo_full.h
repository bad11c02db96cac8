/* SPDX-License-Identifier: GPL-2.0-only */
/* Nodes without a free block for a huge page. */
#ifndef MO_FULL_H
#define MO_FULL_H

/*
 * Leave small pages of a node free, but no block for a huge page: one page of
 * each block stays locked.  The kernel frees the memory that this takes when
 * the process exits.  Returns NULL, or the reason.
 */
const char *mo_full(int node);
/* Restore the settings that this changed. */
void mo_full_end(void);

#endif /* MO_FULL_H */
