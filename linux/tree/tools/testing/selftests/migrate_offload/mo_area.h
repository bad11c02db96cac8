/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory of every kind that migrates, and what it should contain. */
#ifndef MO_AREA_H
#define MO_AREA_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>
#include <sys/types.h>

enum mo_type {
	MO_ANON,
	MO_MLOCKED,
	MO_SHMEM,	/* memfd */
	MO_TMPFS,
	MO_EXT4,	/* written through the mapping, so with buffer heads */
	MO_EXT4_CLEAN,	/* only read, so without */
	MO_KSM,		/* two pages each share one folio */
	MO_SWAPCACHE,	/* mapped, and still in the swap cache */
	MO_HUGETLB,	/* anonymous and private */
	MO_HUGETLB_SHARED,
	MO_HUGETLB_FILE, /* in a file system that has a limit of its own */
};

/**
 * struct mo_area - memory that a test moves
 * @mem: the memory.
 * @bytes: how much.
 * @folio_bytes: what it is made of.
 * @step: each @step bytes there is another folio to move.
 * @scattered: of each 64 folios move 32 in a row, and the others in no such order.
 * @shadow: what @mem should contain, kept elsewhere.
 *
 * The rest is what to clean up.
 */
struct mo_area {
	enum mo_type type;
	char *mem;
	size_t bytes;
	size_t folio_bytes;
	size_t step;
	bool scattered;
	__u64 *shadow;
	void *mapped;
	size_t mapped_bytes;
	int fd;
	bool swap_on;
	pid_t keeper;
	char dir[32];
	long long pool[2];	/* pages that the pools of hugetlb have for it */
};

/*
 * Map @bytes of a type, filled, and with folios of @folio_bytes, on node
 * mo_nodes[0].  Returns NULL, or why this machine cannot.
 */
const char *mo_map(struct mo_area *area, enum mo_type type, size_t bytes,
		   size_t folio_bytes);
void mo_unmap(struct mo_area *area);

/* mo_huge.c */
const char *mo_map_huge(struct mo_area *area);
void mo_unmap_huge(const struct mo_area *area);
/* How many hugetlb pages of this size has a node, or are free there? */
long long mo_huge_pages(int node, size_t page_bytes, const char *which);

/* What is allocated from here on comes from the first node. */
void mo_bind(void *mem, size_t bytes);
/* Fill the memory with what the shadow says. */
void mo_fill(struct mo_area *area);
/* Mount something at a new directory. */
bool mo_mount(struct mo_area *area, const char *what, const char *type,
	      const char *options);
void mo_open_file(struct mo_area *area);

/* Make a swap area as mkswap(8) does, and switch it on.  NULL, or why not. */
const char *mo_swap_on(void);
void mo_swap_off(void);

/* Which folio is the nth to move, if all of them are? */
size_t mo_nth(const struct mo_area *area, size_t nth);
/* Does the memory contain what it should?  Says where not. */
bool mo_content_ok(const struct mo_area *area);
/* Does one page? */
bool mo_page_ok(const struct mo_area *area, size_t page);
/* How many pages are not on this node? */
unsigned long mo_elsewhere(const struct mo_area *area, int node);
/*
 * One move_pages(2) of all folios.  Returns what that returned, see there: not
 * how many pages did not move.
 */
long mo_move_once(const struct mo_area *area, int node);
/* Move until all is there.  Returns the number of pages that will not. */
unsigned long mo_move(const struct mo_area *area, int node);
/* Fill the shadow of one page with a byte. */
void mo_expect_byte(struct mo_area *area, size_t page, int byte);

#endif /* MO_AREA_H */
