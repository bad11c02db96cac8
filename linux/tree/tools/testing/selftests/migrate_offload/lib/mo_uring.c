// SPDX-License-Identifier: GPL-2.0-only
#include <linux/io_uring.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include "mo_hazard.h"
#include "mo_uring.h"
#include "mo_util.h"

struct mo_uring {
	int fd;
	struct io_uring_sqe *sqe;	/* the only one */
	unsigned int *sq_tail;
	unsigned int *sq_mask;
	unsigned int *sq_array;
	unsigned int *cq_head;
	unsigned int *cq_tail;
	unsigned int *cq_mask;
	struct io_uring_cqe *cqes;
};

struct mo_uring *mo_uring_open(void)
{
	struct io_uring_params p = {};
	struct mo_uring *ring = calloc(1, sizeof(*ring));
	size_t bytes, cq_bytes;
	char *rings;

	if (!ring)
		mo_die("no memory");
	ring->fd = syscall(SYS_io_uring_setup, 1, &p);
	if (ring->fd < 0 || !(p.features & IORING_FEAT_SINGLE_MMAP)) {
		free(ring);
		return NULL;
	}
	bytes = p.sq_off.array + p.sq_entries * sizeof(unsigned int);
	cq_bytes = p.cq_off.cqes + p.cq_entries * sizeof(*ring->cqes);
	rings = mmap(NULL, bytes > cq_bytes ? bytes : cq_bytes,
		     PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
		     IORING_OFF_SQ_RING);
	ring->sqe = mmap(NULL, p.sq_entries * sizeof(*ring->sqe),
			 PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE,
			 ring->fd, IORING_OFF_SQES);
	if (rings == MAP_FAILED || ring->sqe == MAP_FAILED)
		mo_die("cannot map the rings of an io_uring: %m");
	ring->sq_tail = (unsigned int *)(rings + p.sq_off.tail);
	ring->sq_mask = (unsigned int *)(rings + p.sq_off.ring_mask);
	ring->sq_array = (unsigned int *)(rings + p.sq_off.array);
	ring->cq_head = (unsigned int *)(rings + p.cq_off.head);
	ring->cq_tail = (unsigned int *)(rings + p.cq_off.tail);
	ring->cq_mask = (unsigned int *)(rings + p.cq_off.ring_mask);
	ring->cqes = (struct io_uring_cqe *)(rings + p.cq_off.cqes);
	return ring;
}

bool mo_uring_register(struct mo_uring *ring, void *mem, size_t bytes)
{
	struct iovec iov = { .iov_base = mem, .iov_len = bytes };

	return !syscall(SYS_io_uring_register, ring->fd,
			IORING_REGISTER_BUFFERS, &iov, 1);
}

void mo_uring_unregister(struct mo_uring *ring)
{
	if (syscall(SYS_io_uring_register, ring->fd, IORING_UNREGISTER_BUFFERS,
		    NULL, 0))
		mo_die("cannot unregister buffers: %m");
}

int mo_uring_rw(struct mo_uring *ring, bool write, int fd, void *mem,
		size_t bytes, off_t offset)
{
	unsigned int tail = *ring->sq_tail, head = *ring->cq_head;
	int res;

	*ring->sqe = (struct io_uring_sqe) {
		.opcode = write ? IORING_OP_WRITE_FIXED : IORING_OP_READ_FIXED,
		.fd = fd,
		.off = offset,
		.addr = (size_t)mem,
		.len = bytes,
	};
	ring->sq_array[tail & *ring->sq_mask] = 0;
	__atomic_store_n(ring->sq_tail, tail + 1, __ATOMIC_RELEASE);
	if (syscall(SYS_io_uring_enter, ring->fd, 1, 1, IORING_ENTER_GETEVENTS,
		    NULL, 0) != 1)
		mo_die("cannot enter an io_uring: %m");
	while (__atomic_load_n(ring->cq_tail, __ATOMIC_ACQUIRE) == head)
		usleep(100);
	res = ring->cqes[head & *ring->cq_mask].res;
	__atomic_store_n(ring->cq_head, head + 1, __ATOMIC_RELEASE);
	return res;
}

int mo_uring_device_writes(struct mo_area *area, struct mo_uring *ring,
			   size_t nth)
{
	char *page = area->mem + nth * SZ_4K;
	int fd = memfd_create("device", 0);

	/* A write to a shared page makes a copy. */
	__atomic_store_n(page, *page, __ATOMIC_RELAXED);
	mo_expect_byte(area, nth, 0xa5);
	if (fd < 0 || pwrite(fd, area->shadow + nth * SZ_4K / sizeof(__u64),
			     SZ_4K, 0) != SZ_4K)
		mo_die("cannot write to a memfd: %m");
	if (mo_uring_rw(ring, false, fd, page, SZ_4K, 0) != SZ_4K)
		mo_die("cannot read into a page that is pinned");
	close(fd);
	return mo_verdict(area);
}
