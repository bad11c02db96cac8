/* SPDX-License-Identifier: GPL-2.0-only */
/* Memory of each kind that migrates, and the content that it must have. */
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
	MO_EXT4,	/* written by mmap: with buffer heads */
	MO_EXT4_CLEAN,	/* only read: without buffer heads */
	MO_KSM,		/* two pages each share one folio */
	MO_SWAPCACHE,	/* mapped, and still in the swap cache */
	MO_HUGETLB,	/* anonymous and private */
	MO_HUGETLB_SHARED,
	MO_HUGETLB_FILE, /* in a hugetlbfs with a size limit */
};

/**
 * struct mo_area - memory that a test moves
 * @mem: the memory.
 * @bytes: its size.
 * @folio_bytes: the size of its folios.
 * @step: the distance between two folios to move.
 * @scattered: of each 64 folios, move 32 in order, and the others out of order.
 * @shadow: a copy of the content that @mem must have.
 *
 * All other fields serve the cleanup.
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
	long long pool[2];	/* pages added to the nodes' hugetlb pools */
};

/*
 * Map and fill @bytes of a type on node mo_nodes[0], with folios of
 * @folio_bytes.  Returns NULL, or the reason why this machine cannot.
 */
const char *mo_map(struct mo_area *area, enum mo_type type, size_t bytes,
		   size_t folio_bytes);
/* The same with three tries, between which the kernel defragments memory. */
const char *mo_map_with_patience(struct mo_area *area, enum mo_type type,
				 size_t bytes, size_t folio_bytes);
void mo_unmap(struct mo_area *area);

/* mo_huge.c */
const char *mo_map_huge(struct mo_area *area);
void mo_unmap_huge(const struct mo_area *area);
/* A node's number of hugetlb pages of a size, for example of free ones. */
long long mo_huge_pages(int node, size_t page_bytes, const char *which);

/* Later allocations for this memory come from the first node. */
void mo_bind(void *mem, size_t bytes);
/* Copy the shadow to the memory. */
void mo_fill(struct mo_area *area);
/* The same for new folios of another size, in a part of anonymous memory. */
void mo_refill(struct mo_area *area, size_t at, size_t bytes,
	       size_t folio_bytes);
/* Mount a file system at a new directory. */
bool mo_mount(struct mo_area *area, const char *what, const char *type,
	      const char *options);
void mo_open_file(struct mo_area *area);

/*
 * Make a swap area as mkswap(8) does, and switch it on.  Returns NULL, or the
 * reason.
 */
const char *mo_swap_on(void);
void mo_swap_off(void);

/* Returns the index of the nth folio to move, if all folios move. */
size_t mo_nth(const struct mo_area *area, size_t nth);
/* Compare the memory with the shadow.  Prints the first difference. */
bool mo_content_ok(const struct mo_area *area);
/* Compare one page with its shadow. */
bool mo_page_ok(const struct mo_area *area, size_t page);
/* Returns the number of pages that are not on this node. */
unsigned long mo_elsewhere(const struct mo_area *area, int node);
/*
 * One move_pages(2) of all folios.  Returns the result of mo_move_pages(),
 * which is not the number of pages that did not move.
 */
long mo_move_once(const struct mo_area *area, int node);
/*
 * Move until all pages are on the node.  Returns the number of pages that stay.
 */
unsigned long mo_move(const struct mo_area *area, int node);
/* Fill the shadow of one page with a byte. */
void mo_expect_byte(struct mo_area *area, size_t page, int byte);

#endif /* MO_AREA_H */
