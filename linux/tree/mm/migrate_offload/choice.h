/* SPDX-License-Identifier: GPL-2.0-only */
/* Choose the engine or the CPU: see mm/migrate_offload/choice.c. */
#ifndef _MM_MIGRATE_OFFLOAD_CHOICE_H
#define _MM_MIGRATE_OFFLOAD_CHOICE_H

#include <linux/migrate_mode.h>
#include <linux/types.h>

struct kobj_attribute;
struct list_head;
struct migrate_engine;

/* The time of some lists, and the pages that moved in it. */
struct migrate_cost {
	unsigned int ns;
	unsigned int pages;
};

/*
 * Costs of lists of one kind.  Tasks update them without a lock: a lost update
 * makes a mean less precise, and no member is larger than a word.
 */
struct migrate_choice {
	struct migrate_cost engine;
	struct migrate_cost cpu;
	long credit_ns;		/* for the slower side; below 0: no try */
};

/* Sizes of folios: 1, up to 8, 64 and 512 pages, and more. */
#define MIGRATE_NR_SIZES 5

/* Lengths of lists: below 128 KiB, up to 2 MiB, and more. */
#define MIGRATE_NR_LENGTHS 3

/* The number of kinds of lists that an engine has. */
#define MIGRATE_NR_CHOICES (MR_TYPES * MIGRATE_NR_SIZES * MIGRATE_NR_LENGTHS)

/* A list that is being timed. */
struct migrate_attempt {
	struct migrate_choice *choice;	/* NULL: the list is not timed */
	bool by_cpu;
	bool on_credit;
	u64 start_ns;
};

extern unsigned int migrate_engine_always;

void migrate_choose(struct migrate_attempt *attempt,
		    const struct migrate_engine *engine, int reason,
		    unsigned int order, size_t bytes);
#ifdef CONFIG_MIGRATION_COPY_OFFLOAD
void migrate_attempt_end(struct migrate_attempt *attempt, unsigned int pages);
#endif
bool migrate_engine_pays(const struct migrate_engine *engine, int reason,
			 unsigned int order, size_t bytes);

#endif /* _MM_MIGRATE_OFFLOAD_CHOICE_H */
