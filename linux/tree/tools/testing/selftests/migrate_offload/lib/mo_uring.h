/* SPDX-License-Identifier: GPL-2.0-only */
/* The part of io_uring(7) that pins memory for long. */
#ifndef MO_URING_H
#define MO_URING_H

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "mo_area.h"

struct mo_uring;

/* Returns NULL without io_uring, or without permission. */
struct mo_uring *mo_uring_open(void);
/* Pin a buffer until it is unregistered, or the process ends. */
bool mo_uring_register(struct mo_uring *ring, void *mem, size_t bytes);
void mo_uring_unregister(struct mo_uring *ring);
/*
 * Read or write a part of that buffer, wherever it is mapped, as a device
 * would.  Returns the number of bytes, or -errno.
 */
int mo_uring_rw(struct mo_uring *ring, bool write, int fd, void *mem,
		size_t bytes, off_t offset);
/*
 * Have a device write to the nth page, which the ring has pinned.  Returns the
 * verdict on the area.
 */
int mo_uring_device_writes(struct mo_area *area, struct mo_uring *ring,
			   size_t nth);

#endif /* MO_URING_H */
