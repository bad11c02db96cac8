/* SPDX-License-Identifier: GPL-2.0-only */
/* routines.c: copies of folios, in user space. */
#ifndef PF_ROUTINES_H
#define PF_ROUTINES_H

#include "bench.h"

enum { PAGES, NONTEMPORAL, DIRECT, STRING, WIDE, NR_ROUTINES };

struct routine {
	/* @bytes is a multiple of the page size, both places are aligned. */
	void (*copy)(char *dst, const char *src, size_t bytes);
	bool (*exists)(void);
};

extern const struct routine routines[NR_ROUTINES];
extern const char *const routine_names[NR_ROUTINES + 1];

void caches_flush(const char *start, size_t bytes);

/*
 * NONTEMPORAL and DIRECT meet exceptions in the kernel, where signals stand for
 * these.  Returns how many bytes a signal has left.
 */
unsigned long copy_until_signal(unsigned int routine, char *dst,
				const char *src, size_t bytes);

#endif /* PF_ROUTINES_H */
