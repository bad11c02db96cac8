/* SPDX-License-Identifier: GPL-2.0-only */
/* Exchange two folios.  See mm/migrate_offload/exchange.c. */
#ifndef _MM_MIGRATE_OFFLOAD_EXCHANGE_H
#define _MM_MIGRATE_OFFLOAD_EXCHANGE_H

#include <linux/migrate.h>

struct folio;

int migrate_exchange_folios(struct folio *a, struct folio *b,
			    enum migrate_reason reason);

#endif /* _MM_MIGRATE_OFFLOAD_EXCHANGE_H */
