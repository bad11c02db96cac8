/* SPDX-License-Identifier: GPL-2.0-only */
/* What the hazards have in common; each runs in a process of its own. */
#ifndef MO_HAZARD_H
#define MO_HAZARD_H

#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

/* How a case ends; anything else means that it could not be arranged. */
enum { RIGHT = 0, SKIPPED = KSFT_SKIP, DAMAGED = 10 };

static inline void mo_map_anon(struct mo_area *area, size_t bytes,
			       size_t folio_bytes)
{
	const char *why_not = mo_map(area, MO_ANON, bytes, folio_bytes);

	if (why_not)
		mo_die("%s", why_not);
}

static inline int mo_verdict(const struct mo_area *area)
{
	return mo_content_ok(area) ? RIGHT : DAMAGED;
}

int mo_run_late(void);
int mo_run_unload(void);

#endif /* MO_HAZARD_H */
