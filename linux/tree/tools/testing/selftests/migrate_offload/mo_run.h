/* SPDX-License-Identifier: GPL-2.0-only */
/* What the cases of small pages that migrate in runs have in common. */
#ifndef MO_RUN_H
#define MO_RUN_H

#include <stdbool.h>
#include <sys/types.h>

#include "mo_area.h"

#define RUN_PAGES 64

/* A child that has the same memory mapped, and does what it is asked for. */
struct mo_kin {
	pid_t pid;
	int to;
	int from;
};

enum mo_kin_question {
	KIN_WRITES = 'w',	/* content of its own to all pages */
	KIN_CHECKS = 'c',	/* what it should have; answers with a verdict */
};

/* NULL if pages migrate in runs here, else the reason why not. */
const char *mo_run_cannot(void);
/* Map small pages in a row that nobody else has. */
void mo_run_map(struct mo_area *area, size_t nr_pages);
/*
 * Move them all with an engine, and do something while it is copying.  They are
 * this process's (0), or at the same addresses of another one.
 */
void mo_run_move(struct mo_area *area, pid_t pid,
		 void (*act)(struct mo_area *area));

/* Let pages go in runs, or each by itself. */
void mo_run_batch(bool on);

/* Mark pages as idle, but for some that the kernel takes no marks for. */
void mo_run_set_idle(const struct mo_area *area);

void mo_kin_start(struct mo_kin *kin, struct mo_area *area);
int mo_kin_ask(const struct mo_kin *kin, enum mo_kin_question question);
/* It must not have any entries that nobody may look at. */
void mo_kin_end(struct mo_kin *kin);

/*
 * Has a process migration entries, when nothing migrates any more?  To touch
 * such a page, to look at it in pagemap, or to unmap it is a BUG() with the page
 * table locked.
 */
bool mo_run_dangles(pid_t pid, const struct mo_area *area);

/* runs_flight.c */
int mo_run_rewritten(void);
int mo_run_forked(void);
int mo_run_mlocked(void);
int mo_run_stale_tlb(void);
int mo_run_stale_hint(void);
int mo_run_moved(void);
int mo_run_unmapped(void);
int mo_run_ended(void);

#endif /* MO_RUN_H */
