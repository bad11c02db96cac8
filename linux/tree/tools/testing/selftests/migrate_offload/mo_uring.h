/* SPDX-License-Identifier: GPL-2.0-only */
/* As much of io_uring(7) as it takes to have memory pinned for long. */
#ifndef MO_URING_H
#define MO_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

struct mo_uring;

/* NULL if this kernel has no io_uring, or not for us. */
struct mo_uring *mo_uring_open(void);
/* Pin a buffer until it is given back, or the process ends. */
bool mo_uring_register(struct mo_uring *ring, void *mem, size_t bytes);
void mo_uring_unregister(struct mo_uring *ring);
/*
 * Read or write a part of that buffer, wherever it is mapped, as a device would.
 * Returns how many bytes it was, or -errno.
 */
int mo_uring_rw(struct mo_uring *ring, bool write, int fd, void *mem,
		size_t bytes, off_t offset);

#endif /* MO_URING_H */
