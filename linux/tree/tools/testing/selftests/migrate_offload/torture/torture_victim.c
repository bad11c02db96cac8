// SPDX-License-Identifier: GPL-2.0-only
/*
 * The process whose memory moves.  Its workers use memory as programs do, and a
 * server handles its userfaultfd.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/userfaultfd.h>
#include <malloc.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "mo_torture.h"

static struct slot slots[NR_SLOTS];
/* The place of the first slot, except while it moves. */
static char *home;
static struct worker workers[NR_WORKERS];
static int uffd = -1;
static atomic_bool serving;
static pthread_barrier_t all_started;

/* Returns -1 if the kernel has no userfaultfd. */
int torture_uffd(void)
{
	return uffd;
}

/* Each operation once, as a short run may be slow, and then at random. */
static void *worker_fn(void *arg)
{
	struct worker *w = arg;
	unsigned int turn = w->nr * nr_torture_ops / NR_WORKERS;
	const unsigned int all_done = turn + nr_torture_ops;

	pthread_barrier_wait(&all_started);
	while (!atomic_load(&shared->stop)) {
		struct slot *s = &slots[roll(w) % NR_SLOTS];
		unsigned int nr = turn < all_done ? turn : roll(w);

		nr %= nr_torture_ops;

		if (s->device && torture_ops[nr].whole_pages)
			continue;
		if (pthread_mutex_trylock(&s->lock))
			continue;
		torture_ops[nr].run(w, s);
		if (roll(w) % 2)
			check_slot(torture_ops[nr].name, s);
		pthread_mutex_unlock(&s->lock);
		atomic_fetch_add(&shared->done[nr], 1);
		turn++;
	}
	return NULL;
}

/* Handle the first write to a protected page. */
static void serve_wp(struct slot *s, size_t page)
{
	struct uffdio_writeprotect wp = {
		.range = {
			.start = (size_t)(s->mem + page * SZ_4K), .len = SZ_4K,
		},
	};

	atomic_fetch_add(&s->nr_caught[page], 1);
	while (ioctl(uffd, UFFDIO_WRITEPROTECT, &wp))
		if (errno != EAGAIN)
			mo_die("cannot let a page be written: %m");
}

/* Fill an absent page. */
static void serve_missing(struct slot *s, size_t page, char *buf)
{
	struct uffdio_copy copy = {
		.dst = (size_t)(s->mem + page * SZ_4K),
		.src = (size_t)buf,
		.len = SZ_4K,
	};

	fill_page(buf, s->version[page]);
	while (ioctl(uffd, UFFDIO_COPY, &copy)) {
		/* EEXIST: another thread faulted, too.  EAGAIN: try again. */
		if (errno == EEXIST)
			break;
		if (errno != EAGAIN)
			mo_die("cannot fill a page by a userfaultfd: %m");
		copy.copy = 0;
	}
}

static void *server_fn(void *arg)
{
	char *buf = arg;
	struct pollfd wait = { .fd = uffd, .events = POLLIN };
	struct uffd_msg msg;
	size_t offset;

	while (atomic_load(&serving)) {
		if (poll(&wait, 1, 100) <= 0)
			continue;
		if (read(uffd, &msg, sizeof(msg)) != sizeof(msg))
			continue;
		offset = msg.arg.pagefault.address - (size_t)home;
		if (msg.event != UFFD_EVENT_PAGEFAULT ||
		    offset >= NR_SLOTS * SLOT_BYTES)
			mo_die("the userfaultfd reports an unexpected event");
		if (msg.arg.pagefault.flags & UFFD_PAGEFAULT_FLAG_WP)
			serve_wp(&slots[offset / SLOT_BYTES],
				 offset % SLOT_BYTES / SZ_4K);
		else
			serve_missing(&slots[offset / SLOT_BYTES],
				      offset % SLOT_BYTES / SZ_4K, buf);
	}
	return NULL;
}

static void open_uffd(void)
{
	struct uffdio_api api = {
		.api = UFFD_API, .features = UFFD_FEATURE_PAGEFAULT_FLAG_WP,
	};

	uffd = syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK);
	if (uffd < 0 || ioctl(uffd, UFFDIO_API, &api)) {
		printf("# no userfaultfd: %m\n");
		uffd = -1;
	}
}

static char *new_memory(size_t bytes, int prot)
{
	char *mem = mmap(NULL, bytes, prot,
			 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);

	if (mem == MAP_FAILED)
		mo_die("cannot map memory: %m");
	return mem;
}

static void prepare_worker(struct worker *w, unsigned int nr, __u64 seed)
{
	*w = (struct worker) {
		.nr = nr,
		.seed = mo_mix(seed, nr),
		.scratch = new_memory(SLOT_BYTES, PROT_NONE),
		.buf = new_memory(SLOT_BYTES, PROT_READ | PROT_WRITE),
		.disk = open(DISK, O_RDWR | O_DIRECT | O_CLOEXEC),
		.disk_offset = nr * SLOT_BYTES,
		.ring = mo_uring_open(),
	};
	torture_files_open(w);
	if (pipe2(w->pipe, O_CLOEXEC))
		mo_die("cannot make a pipe: %m");
	if (!nr && w->disk < 0)
		printf("# no " DISK ": %m\n");
	if (!nr && !w->ring)
		printf("# no io_uring\n");
}

static void prepare_slots(__u64 seed)
{
	size_t bytes = NR_SLOTS * SLOT_BYTES, i;
	char *room = new_memory(bytes + SZ_2M, PROT_NONE);
	struct worker *w = &workers[0];

	room = (char *)(((size_t)room + SZ_2M - 1) & ~(SZ_2M - 1));
	if (mmap(room, bytes, PROT_READ | PROT_WRITE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != room)
		mo_die("cannot map memory: %m");
	home = room;
	for (i = 0; i < NR_SLOTS; i++) {
		pthread_mutex_init(&slots[i].lock, NULL);
		slots[i].mem = room + i * SLOT_BYTES;
		slots[i].large = i >= FIRST_LARGE_SLOT;
		slots[i].device = i >= FIRST_DEVICE_SLOT && i <= LAST_DEVICE_SLOT;
		slot_is_new(&slots[i]);
		write_pages(w, &slots[i], 0, 1);
	}
}

int torture_victim(__u64 seed)
{
	pthread_t threads[NR_WORKERS], server;
	unsigned int i;

	prctl(PR_SET_PDEATHSIG, SIGKILL);
	/*
	 * A worker unmaps a slot, and maps it again at the same address.  In
	 * between no new mapping may take the address.  So threads have no
	 * arena of their own, and all stacks exist before the first worker
	 * begins.
	 */
	mallopt(M_ARENA_MAX, 1);
	pthread_barrier_init(&all_started, NULL, NR_WORKERS + 1);
	open_uffd();
	for (i = 0; i < NR_WORKERS; i++)
		prepare_worker(&workers[i], i, seed);
	prepare_slots(seed);
	atomic_store(&serving, true);
	if (uffd >= 0 && pthread_create(&server, NULL, server_fn,
					new_memory(SZ_4K, PROT_READ | PROT_WRITE)))
		mo_die("cannot start a thread");
	for (i = 0; i < NR_WORKERS; i++)
		if (pthread_create(&threads[i], NULL, worker_fn, &workers[i]))
			mo_die("cannot start a thread");
	pthread_barrier_wait(&all_started);
	fflush(stdout);
	atomic_store(&shared->mem, (uintptr_t)home);
	for (i = 0; i < NR_WORKERS; i++)
		pthread_join(threads[i], NULL);
	atomic_store(&serving, false);
	if (uffd >= 0)
		pthread_join(server, NULL);
	for (i = 0; i < NR_SLOTS; i++)
		check_slot("at the end", &slots[i]);
	return atomic_load(&shared->wrong) ? 1 : 0;
}
