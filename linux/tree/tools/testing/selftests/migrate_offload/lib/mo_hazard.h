/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations for the hazards.  Each case runs in a process of its own. */
#ifndef MO_HAZARD_H
#define MO_HAZARD_H

#include <stdbool.h>
#include <stddef.h>

#include "mo_area.h"
#include "mo_util.h"

/* The exit status of a case.  All others mean that the setup failed. */
enum { RIGHT = 0, SKIPPED = KSFT_SKIP, DAMAGED = 10 };

/**
 * struct mo_hazard - a way to lose data, and the rule that prevents it
 * @name: the name of the case.
 * @rule: the rule to break, so that the damage shows; NULL if there is none.
 * @run: sets up the case, and returns its verdict.
 * @posted: needs a test engine that is a struct migrator.
 * @hints: a check without locks already skips this memory.  The test ignores
 *	the result of this check when the rule is broken, and once more with all
 *	rules on, which must be right, too.
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

/* Print the reason why a case is skipped. */
int mo_skip(const char *why);
/*
 * Write @text to a file of the test module, to create a holder of a reference.
 * The holder drops the reference by itself, or when the returned fd is closed.
 */
int mo_hold(const char *file, const char *text);
/* Wait until the test engine has written late, more often than @before. */
void mo_wait_for_late_write(long long before);

/* Poison a page of this process until the case ends. */
void mo_poison(void *page);
/* Poison an isolated page until the case ends.  The page stays mapped. */
void mo_poison_isolated(void *page);
/* Returns true if a read of this poisoned page raises SIGBUS. */
bool mo_raises_sigbus(const void *page);

/*
 * The mappings of this process are so damaged that the kernel must not unmap
 * them.  Stay until the machine is switched off.  This counts as damage.
 */
__noreturn void mo_stay(void);

/* main() of a program of hazards.  @cannot_run returns NULL, or the reason. */
int mo_hazards_main(const struct mo_hazard *hazards, size_t nr_hazards,
		    const char *(*cannot_run)(void), int argc, char **argv);

int mo_run_late(void);
int mo_run_unload(void);

/* hazards_huge.c: hazards of hugetlb folios */
int mo_run_huge_pin(void);
int mo_run_huge_retry(void);
int mo_run_huge_bad_page(void);
int mo_run_huge_late(void);

#endif /* MO_HAZARD_H */
