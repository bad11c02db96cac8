// SPDX-License-Identifier: GPL-2.0-only
/* KTAP tests of the copy routines that the kernel and bench/copy.c share. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "common/ktap.h"
#include "common/routines.h"

#define PAGE 4096

/* A signal ends a loop at the page that causes it, if it reads or writes. */
static void test_routine(unsigned int routine, const char *name)
{
	const size_t two = 2 * PAGE, four = 4 * PAGE;
	char *small = mmap(NULL, four, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char *large = mmap(NULL, four, PROT_READ | PROT_WRITE,
			   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	char text[80];
	bool right;

	if (small == MAP_FAILED || large == MAP_FAILED)
		exit(1);
	mprotect(small + two, two, PROT_NONE);
	memset(small, 1, two);
	right = copy_until_signal(routine, large, small, four) == two &&
		!memcmp(large, small, two) && !large[two] && !large[four - 1];
	snprintf(text, sizeof(text), "routines: %s ends at a page without read access",
		 name);
	check(right, text);

	memset(large, 2, four);
	right = copy_until_signal(routine, small, large, four) == two &&
		!memcmp(large, small, two);
	snprintf(text, sizeof(text), "routines: %s ends at a page without write access",
		 name);
	check(right, text);

	right = !copy_until_signal(routine, small, large, two);
	snprintf(text, sizeof(text), "routines: %s leaves nothing", name);
	check(right, text);
	munmap(small, four);
	munmap(large, four);
}

int main(void)
{
	ktap_start();
	for (unsigned int i = NONTEMPORAL; i <= DIRECT; i++)
		if (routines[i].exists())
			test_routine(i, routine_names[i]);
	return ktap_end();
}
