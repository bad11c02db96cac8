/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations for the cases of folios that migrate in runs. */
#ifndef MO_RUN_H
#define MO_RUN_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mo_area.h"

#define RUN_PAGES 64
/* Folios of this size migrate in runs. */
#define RUN_FOLIO_BYTES (16 * SZ_4K)

/* A child that maps the same memory and answers questions. */
struct mo_kin {
	pid_t pid;
	int to;
	int from;
};

enum mo_kin_question {
	KIN_WRITES = 'w',	/* write other content to all pages */
	KIN_CHECKS = 'c',	/* check all pages, and answer with a verdict */
	KIN_KEEPS = 'k',	/* keep its part: see mo_run_keep_some() */
	KIN_OWNS = 'o',		/* own its part: see mo_run_own_some() */
	KIN_WATCHES = 'u',	/* watch for missing pages by a userfaultfd */
	KIN_EXECS = 'e',	/* run a sleeping program: see mo_kin_exec() */
};

/*
 * Two processes share memory.  Keep three of six pages, from the first (turn 0)
 * or the fourth on (turn 1), and unmap all others.
 */
void mo_run_keep_some(struct mo_area *area, size_t turn);
/*
 * Write to the kept pages.  If the other process has unmapped a page before,
 * the write makes the page exclusive.
 */
void mo_run_own_some(struct mo_area *area, size_t turn);

/* Returns NULL if pages migrate in runs here, else the reason. */
const char *mo_run_cannot(void);
/* From now on, mo_run_map() maps folios of this size, by single entries. */
void mo_run_use_large(size_t bytes);
/*
 * Map adjacent small pages, or large folios, that no other process maps: at
 * least one folio.
 */
void mo_run_map(struct mo_area *area, size_t nr_pages);
/*
 * The same for RUN_PAGES in a private mapping of a file.  Linux 7.3 counts the
 * page offsets of its anonymous pages from the address, and 6.12 from the file.
 */
void mo_run_map_file(struct mo_area *area);
/* The same in a shared mapping: the pages are page cache. */
void mo_run_map_cache(struct mo_area *area);
/*
 * Move all pages with an engine, and call @act while it copies.  The pages are
 * of this process (@pid 0), or at the same addresses of another one.
 */
void mo_run_move(struct mo_area *area, pid_t pid,
		 void (*act)(struct mo_area *area));

/* Unmap pages in runs, or one by one. */
void mo_run_batch(bool on);

/* Mark pages as idle.  The kernel has no mark for the last frames of memory. */
void mo_run_set_idle(const struct mo_area *area);

/*
 * Returns true if PageAnonExclusive() is set.  No file shows this flag.  But
 * while a pipe holds a reference, a write copies any page without the flag.
 */
bool mo_is_exclusive(char *page);

/* Bits of /proc/self/pagemap that move with a page: soft-dirty and exclusive. */
static const __u64 mo_map_bits = 1ULL << 55 | 1ULL << 56;

/*
 * Make adjacent pages differ in all bits that move with a page.  These three
 * are for RUN_PAGES pages.
 */
void mo_run_vary(struct mo_area *area);
/* Read these bits. */
void mo_run_look(const struct mo_area *area, __u64 *bits);
/* Count the pages whose bits of @mask differ.  @what describes @expected. */
size_t mo_run_changed(const char *what, const __u64 *bits,
		      const __u64 *expected, __u64 mask);

void mo_kin_start(struct mo_kin *kin, struct mo_area *area);
int mo_kin_ask(const struct mo_kin *kin, enum mo_kin_question question);
/* Returns when the child runs another program.  Kill it to end it. */
void mo_kin_exec(const struct mo_kin *kin);
/*
 * Make the child exit.  Its exit is a BUG() if the child has migration entries
 * that no task will replace.
 */
void mo_kin_end(struct mo_kin *kin);

/*
 * Returns true if a process has migration entries while nothing migrates.  If a
 * process touches or unmaps such a page, or reads its pagemap entry, the kernel
 * hits a BUG() under the page table lock.
 */
bool mo_run_dangles(pid_t pid, const struct mo_area *area);

/* runs_flight.c */
int mo_run_rewritten(void);
int mo_run_forked(void);
int mo_run_mlocked(void);
int mo_run_stale_tlb(void);
int mo_run_stale_tlb_of_file(void);
int mo_run_stale_tlb_of(void (*map)(struct mo_area *area));
int mo_run_stale_own_tlb(void);
int mo_run_stale_hint(void);
int mo_run_cut(void);
int mo_run_moved(void);
int mo_run_unmapped(void);
int mo_run_ended(void);

/* runs_shared.c */
int mo_shared_foreign(void);
int mo_shared_watched(void);
int mo_shared_rewritten(void);
int mo_shared_mlocked(void);
int mo_shared_left(void);
int mo_shared_forked(void);
int mo_shared_mixed(void);
int mo_cache_stale_tlb(void);
int mo_cache_pinned(void);
int mo_cache_poisoned(void);
int mo_cache_truncated(void);
int mo_cache_bits(void);

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
int mo_lone_stale_tlb(void);
int mo_large_stale_tlb(void);
int mo_large_stale_own_tlb(void);
int mo_large_rewritten(void);
int mo_large_forked(void);
int mo_large_shared(void);
int mo_large_moved(void);
int mo_large_unmapped(void);
int mo_large_ended(void);
int mo_large_foreign(void);
int mo_large_partial(void);
int mo_large_queued(void);
int mo_large_mixed(void);

/* runs.c */
int mo_run_shared(void);

#endif /* MO_RUN_H */
