/* SPDX-License-Identifier: GPL-2.0-only */
/* What the cases of small pages that migrate in runs have in common. */
#ifndef MO_RUN_H
#define MO_RUN_H

#include <stdbool.h>
#include <sys/types.h>

#include "mo_area.h"
#include "mo_uring.h"

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
	KIN_KEEPS = 'k',	/* its own part: see mo_run_keep_some() */
	KIN_OWNS = 'o',		/* that part alone: see mo_run_own_some() */
	KIN_EXECS = 'e',	/* another program, which sleeps; see mo_kin_exec() */
};

/*
 * Of memory that two processes share keep three pages in six, from the first or from
 * the fourth on (turn 0 or 1), and give up the others.
 */
void mo_run_keep_some(struct mo_area *area, size_t turn);
/* Write to those: when the other one has given them up, they become exclusive. */
void mo_run_own_some(struct mo_area *area, size_t turn);

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
/* Returns when it has become another program, which has to be killed. */
void mo_kin_exec(const struct mo_kin *kin);
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
int mo_run_cut(void);
int mo_run_moved(void);
int mo_run_unmapped(void);
int mo_run_ended(void);
int mo_large_stale_tlb(void);

/* runs.c: a device writes to a page of the ring's that it pins. */
int mo_run_device_writes(struct mo_area *area, struct mo_uring *ring,
			 size_t nth);

/* runs_beside.c */
#define MO_RUN_EXEC_CHECK "exec-check"
int mo_run_exec_check(int argc, char **argv);
int mo_run_hints(void);
int mo_run_executed(void);
int mo_run_arguments(void);
int mo_run_uffd_moved(void);
int mo_run_merged(void);
int mo_run_collapsed(void);
int mo_run_in_turn(void);

/* runs_large.c */
int mo_large_pinned(void);
int mo_large_poisoned(void);

#endif /* MO_RUN_H */
