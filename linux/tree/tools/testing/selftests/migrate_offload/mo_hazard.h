/* SPDX-License-Identifier: GPL-2.0-only */
/* What the hazards have in common; each runs in a process of its own. */
#ifndef MO_HAZARD_H
#define MO_HAZARD_H

#include <stdbool.h>
#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

/* How a case ends; anything else means that it could not be arranged. */
enum { RIGHT = 0, SKIPPED = KSFT_SKIP, DAMAGED = 10 };

/**
 * struct mo_hazard - a way to lose data, and the rule against it
 * @name: of the case.
 * @rule: which to switch off, so that the damage shows; NULL if there is none.
 * @run: arranges it, and says how it ended.
 * @posted: wants a test engine that is a struct migrator.
 * @hints: the memory is passed over early already, by what is asked without locks.
 *	So this is not believed when the rule is broken, and once with all rules
 *	kept, when all must be right, too.
 */
struct mo_hazard {
	const char *name;
	const char *rule;
	int (*run)(void);
	bool posted;
	bool hints;
};

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

/* Say why a case is skipped. */
int mo_skip(const char *why);
/* What is written is held until it is used, or until this is closed. */
int mo_hold(const char *file, const char *text);
/* Wait until the test engine has written to what it held, more often than before. */
void mo_wait_for_late_write(long long before);

/* Have a page of this process poisoned, until the case has ended. */
void mo_poison(void *page);
/* Likewise, while it is isolated: it stays mapped, and is just marked. */
void mo_poison_isolated(void *page);
/* Does it end in SIGBUS to read this page, which one of them was for? */
bool mo_raises_sigbus(const void *page);

/*
 * What this process has mapped is damaged so that it must not even be unmapped:
 * stay, which counts as damage, until the machine is switched off.
 */
__noreturn void mo_stay(void);

/* main() of a program that has nothing but hazards, if it can run. */
int mo_hazards_main(const struct mo_hazard *hazards, size_t nr_hazards,
		    const char *(*cannot_run)(void), int argc, char **argv);

int mo_run_late(void);
int mo_run_unload(void);

/* hazards_huge.c: of hugetlb folios */
int mo_run_huge_pin(void);
int mo_run_huge_retry(void);
int mo_run_huge_bad_page(void);
int mo_run_huge_late(void);

#endif /* MO_HAZARD_H */
