/* SPDX-License-Identifier: GPL-2.0-only */
/* Copies of folios by a CPU: see copy.c. */
#ifndef _MM_MIGRATE_OFFLOAD_COPY_H
#define _MM_MIGRATE_OFFLOAD_COPY_H

#include <linux/types.h>

struct folio;

int migrate_copy_span(struct folio *dst, struct folio *src, size_t offset,
		      size_t bytes, bool resched);

#endif /* _MM_MIGRATE_OFFLOAD_COPY_H */
