// SPDX-License-Identifier: GPL-2.0-only
/* KTAP tests of kinds of small pages: content, order, and who maps them. */
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bench.h"
#include "common/ktap.h"

static bool wrong(const char *what, const char *name)
{
	fprintf(stderr, "%s: %s\n", name, what);
	return true;
}

/* Only root may see how often a page is mapped. */
static bool wrong_count(const struct region *r, size_t times, const char *name)
{
	size_t all = r->bytes / page_bytes(), nr;

	if (!region_count_unlike(r, times, &nr))
		return false;
	if (nr)
		return wrong("some processes map not all pages", name);
	region_count_unlike(r, times + 1, &nr);
	return nr != all && wrong("a process that is missing is not noticed", name);
}

/* The ranges must have room for all pages, and may have a few others. */
static bool wrong_ranges(const struct region *r, const char *name)
{
	static struct physical ranges[MAX_RANGES];
	size_t nr = region_ranges(r, ranges);
	uint64_t end = 0, sum = 0;

	for (size_t i = 0; i < nr; i++) {
		if (ranges[i].end <= ranges[i].start ||
		    (i && ranges[i].start <= end))
			return wrong("the order of physical ranges", name);
		end = ranges[i].end;
		sum += end - ranges[i].start;
	}
	return nr && sum < r->bytes && wrong("too small physical ranges", name);
}

static bool wrong_pages(enum pages_kind kind, size_t processes)
{
	const char *name = pages_names[kind];
	struct pages pages;
	size_t offset;
	bool found;

	pages_make(&pages, kind, PMD_BYTES, 4);
	found = (pages.nr_children + 1 != processes &&
		 wrong("the number of processes", name)) ||
		wrong_count(&pages.region, processes, name) ||
		wrong_ranges(&pages.region, name) ||
		(!region_verify(&pages.region, 4, &offset) &&
		 wrong("the content", name)) ||
		(region_verify(&pages.region, 6, &offset) &&
		 wrong("other content is not noticed", name));
	pages_free(&pages);
	return found;
}

/* A filesystem may be unable to do what a file takes, and ends the child. */
static void test_kind(enum pages_kind kind, size_t processes)
{
	char text[80];
	int status = 0;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (!pid) {
		dup2(STDERR_FILENO, STDOUT_FILENO);
		_exit(wrong_pages(kind, processes));
	}
	waitpid(pid, &status, 0);
	snprintf(text, sizeof(text), "pages: %s, processes: %zu",
		 pages_names[kind], processes);
	if (pages_are_of_file(kind) && WIFEXITED(status) &&
	    WEXITSTATUS(status) == BENCH_LACKING)
		printf("# %s: not on this filesystem\n", text);
	else
		check(!status, text);
}

int main(void)
{
	ktap_start();
	test_kind(PAGES_RUNS, 1);
	test_kind(PAGES_SHARED, 2);
	test_kind(PAGES_SHARED16, MANY_PROCESSES);
	test_kind(PAGES_SHMEM, 1);
	test_kind(PAGES_SHMEM16, MANY_PROCESSES);
	test_kind(PAGES_FILE, 1);
	test_kind(PAGES_FILE16, MANY_PROCESSES);
	return ktap_end();
}
