// SPDX-License-Identifier: GPL-2.0-only
/*
 * Follow pages by their virtual addresses, which migration keeps.  The kernel's
 * counters have no directions where DAMON moves memory, and no ping-pong.
 */
#include <errno.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "hot_set.h"

#define PING_PONG_NS 60000000000ULL

/* Get the node, or -errno, of each page. */
void pages_query(void **pages, size_t nr, int *nodes)
{
	if (syscall(SYS_move_pages, 0, nr, pages, NULL, nodes, 0))
		bench_die(BENCH_FAILED, "move_pages query: %s",
			  strerror(errno));
}

void followed_look(struct followed *f, int node, int fast, uint64_t now_ns,
		   struct turns *t)
{
	if (node < 0 || node == f->node)
		return;
	if (node == fast) {
		t->up++;
		f->promoted_ns = now_ns;
	} else if (f->node == fast) {
		t->down++;
		if (f->promoted_ns && now_ns - f->promoted_ns <= PING_PONG_NS)
			t->ping_pong++;
		f->promoted_ns = 0;
	}
	f->node = node;
}

void followed_look_all(struct followed *f, size_t nr, int fast,
		       struct turns *t)
{
	static void *pages[QUERY_PAGES];
	static int nodes[QUERY_PAGES];
	uint64_t now_ns = bench_now_ns();

	for (size_t i = 0; i < nr; i++)
		pages[i] = f[i].page;
	pages_query(pages, nr, nodes);
	for (size_t i = 0; i < nr; i++)
		followed_look(&f[i], nodes[i], fast, now_ns, t);
}
