// SPDX-License-Identifier: GPL-2.0-only
/* Exchanges while other tasks and devices use, change or free the memory. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_cgroup.h"
#include "mo_exchange.h"
#include "mo_hazard.h"
#include "mo_notify.h"
#include "mo_run.h"

#define PAGES 16
#define PAGE_WORDS (SZ_4K / sizeof(__u64))
#define FOLIO_BYTES (16 * SZ_4K)
/* Exchanges of all pages, while threads write. */
#define WRITTEN_ROUNDS 60
#define NR_WRITERS 2
/* The word of each page that a device writes. */
#define DEVICE_WORD 511
#define DEVICE_ROUNDS 20
#define BESIDE_ROUNDS 300
#define ENDED_ROUNDS 30
/* Memory of a process in a cgroup. */
#define GROUP_BYTES ((long long)SZ_1M)

static atomic_bool stop;

struct writer {
	pthread_t thread;
	const struct mo_pair *pair;
	size_t word;
	atomic_ulong rounds;
	unsigned long lost;
};

/* Each value names its page, so a page in the place of another one shows. */
static void write_page(struct writer *w, const struct mo_area *area,
		       unsigned int side, size_t page)
{
	__u64 *word = (__u64 *)(area->mem + page * SZ_4K) + w->word;
	__u64 value = w->rounds << 16 | page << 1 | side;

	if (w->rounds > 1 && __atomic_load_n(word, __ATOMIC_RELAXED) !=
			     value - (1 << 16))
		w->lost++;
	__atomic_store_n(word, value, __ATOMIC_RELAXED);
}

static void *write_words(void *arg)
{
	struct writer *w = arg;
	size_t i;

	while (!atomic_load(&stop)) {
		atomic_fetch_add(&w->rounds, 1);
		for (i = 0; i < PAGES; i++) {
			write_page(w, &w->pair->a, 0, i);
			write_page(w, &w->pair->b, 1, i);
		}
	}
	return NULL;
}

/* Others checked these words, so take their content as right. */
static void forgive(struct mo_area *area, size_t word)
{
	size_t i;

	for (i = word; i < area->bytes / sizeof(__u64); i += PAGE_WORDS)
		area->shadow[i] = ((__u64 *)area->mem)[i];
}

/* The host may keep the CPU of a thread from running for a while. */
static bool all_wrote(struct writer *writers)
{
	bool all = true;
	int i;

	for (i = 0; i < NR_WRITERS; i++)
		all &= atomic_load(&writers[i].rounds) >= 2;
	return all;
}

/* Threads write to all pages of both owners.  No write may be lost. */
int mo_exchange_written(void)
{
	struct writer writers[NR_WRITERS] = {};
	unsigned long lost = 0;
	struct mo_pair pair;
	int i;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	for (i = 0; i < NR_WRITERS; i++) {
		writers[i].pair = &pair;
		writers[i].word = i;
		if (pthread_create(&writers[i].thread, NULL, write_words,
				   &writers[i]))
			mo_die("cannot start a thread");
	}
	for (i = 0; i < WRITTEN_ROUNDS || !all_wrote(writers); i++)
		mo_pair_exchange(&pair);
	atomic_store(&stop, true);
	for (i = 0; i < NR_WRITERS; i++) {
		pthread_join(writers[i].thread, NULL);
		lost += writers[i].lost;
		forgive(&pair.a, i);
		forgive(&pair.b, i);
	}
	if (lost)
		printf("# %lu writes were lost\n", lost);
	return lost ? DAMAGED : mo_pair_verdict(&pair);
}

/* Two devices follow the page table of both owners. */
int mo_exchange_device(void)
{
	struct mo_notify before;
	struct mo_pair pair;
	int i, fd_a, fd_b;

	if (!mo_notify_load())
		return mo_skip("no CONFIG_MIGRATE_NOTIFIER_TEST");
	mo_write(PATH_NOTIFY "as_tlb", "N");
	mo_write(PATH_NOTIFY "deaf", "N");
	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	mo_notify_read(&before);
	fd_a = mo_notify_watch(0, pair.a.mem, pair.a.bytes, DEVICE_WORD);
	fd_b = mo_notify_watch(0, pair.b.mem, pair.b.bytes, DEVICE_WORD);
	for (i = 0; i < DEVICE_ROUNDS; i++) {
		if (!mo_notify_wait(PAGES))
			mo_die("the devices do not use their memory");
		mo_pair_exchange(&pair);
	}
	close(fd_a);
	close(fd_b);
	if (mo_notify_failures(&before))
		return DAMAGED;
	forgive(&pair.a, DEVICE_WORD);
	forgive(&pair.b, DEVICE_WORD);
	return mo_pair_verdict(&pair);
}

static struct {
	const struct mo_pair *pair;
	atomic_ulong nr;
} exchanger;

/* Exchange random folios, as far as they are there. */
static void *exchange_some(void *arg)
{
	const struct mo_pair *pair = exchanger.pair;
	size_t step = pair->a.folio_bytes, nr = pair->a.bytes / step;
	__u64 seed = mo_seed(), n;

	for (n = 0; !atomic_load(&stop); n++) {
		__u64 random = mo_mix(seed, n);
		__u64 a = mo_frame(pair->a.mem + random % nr * step);
		__u64 b = mo_frame(pair->b.mem + (random >> 32) % nr * step);

		if (a && b && !mo_exchange_frames(a, b))
			atomic_fetch_add(&exchanger.nr, 1);
	}
	return NULL;
}

static void check_in_child(const struct mo_pair *pair)
{
	int status;
	pid_t pid;

	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		status = mo_pair_verdict(pair);
		fflush(stdout);
		_exit(status);
	}
	/* The parent gets a page of its own while the child reads. */
	pair->a.mem[0]++;
	pair->a.mem[0]--;
	if (waitpid(pid, &status, 0) != pid || status)
		mo_die("the child has other content");
}

/* Move pages to another address and back. */
static void remap(struct mo_area *area, char *other)
{
	if (mremap(area->mem, area->bytes, area->bytes,
		   MREMAP_MAYMOVE | MREMAP_FIXED, other) != other ||
	    mremap(other, area->bytes, area->bytes,
		   MREMAP_MAYMOVE | MREMAP_FIXED, area->mem) != area->mem ||
	    mmap(other, area->bytes, PROT_NONE,
		 MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != other)
		mo_die("mremap: %m");
}

/* Change the mapping of an area in one of several ways. */
static void disturb(struct mo_pair *pair, __u64 random, char *other)
{
	struct mo_area *area = random & 1 ? &pair->a : &pair->b;
	size_t nth = (random >> 8) % (area->bytes / SZ_4K);
	char *page = area->mem + nth * SZ_4K;

	switch ((random >> 4) % 6) {
	case 0:
		check_in_child(pair);
		break;
	case 1:
		if (mprotect(page, SZ_4K, PROT_READ) ||
		    mprotect(page, SZ_4K, PROT_NONE) ||
		    mprotect(page, SZ_4K, PROT_READ | PROT_WRITE))
			mo_die("mprotect: %m");
		break;
	case 2:
		remap(area, other);
		break;
	case 3:
		if (madvise(page, SZ_4K, MADV_DONTNEED))
			mo_die("madvise: %m");
		mo_expect_byte(area, nth, random >> 16 & 0xff);
		memset(page, random >> 16 & 0xff, SZ_4K);
		break;
	case 4:
		if (mlock(page, SZ_4K) || munlock(page, SZ_4K))
			mo_die("mlock: %m");
		break;
	default:
		mo_expect_byte(area, nth, random >> 16 & 0xff);
		memset(page, random >> 16 & 0xff, SZ_4K);
	}
	if (!mo_page_ok(area, nth))
		mo_die("page %zu has other content after change %llu", nth,
		       (random >> 4) % 6);
}

static int beside(size_t folio_bytes)
{
	__u64 seed = mo_seed();
	struct mo_pair pair;
	pthread_t thread;
	char *other;
	int i;

	mo_pair_map(&pair, 4 * FOLIO_BYTES, folio_bytes);
	other = mmap(NULL, pair.a.bytes, PROT_NONE,
		     MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
	if (other == MAP_FAILED)
		mo_die("cannot map memory: %m");
	exchanger.pair = &pair;
	if (pthread_create(&thread, NULL, exchange_some, NULL))
		mo_die("cannot start a thread");
	for (i = 0; i < BESIDE_ROUNDS || !atomic_load(&exchanger.nr); i++)
		disturb(&pair, mo_mix(seed, i), other);
	atomic_store(&stop, true);
	pthread_join(thread, NULL);
	printf("# %lu exchanges, seed %llu\n", exchanger.nr, seed);
	return mo_pair_verdict(&pair);
}

/*
 * The process forks, protects, moves, frees, locks and writes its pages while
 * these change places.
 */
int mo_exchange_beside(void)
{
	return beside(SZ_4K);
}

/* The same for folios that the changes split or replace. */
int mo_exchange_beside_large(void)
{
	return beside(FOLIO_BYTES);
}

/*
 * A child with pages of its own on the second node, whose frames it tells to
 * the parent.  @group: the child's cgroup, or ROOT_GROUP.
 */
static pid_t start_child(const struct mo_pair *pair, __u64 *frames, int group)
{
	size_t bytes = pair->b.bytes / SZ_4K * sizeof(*frames);
	int fds[2];
	pid_t pid;

	if (pipe(fds))
		mo_die("cannot make a pipe: %m");
	fflush(stdout);
	pid = fork();
	if (pid < 0)
		mo_die("cannot fork: %m");
	if (!pid) {
		if (group != ROOT_GROUP)
			child_enter(group);
		memset(pair->b.mem, 0x5a, pair->b.bytes);
		if (mo_move(&pair->b, mo_nodes[1]))
			mo_die("cannot move pages to the second node");
		mo_pfns(pair->b.mem, pair->b.bytes / SZ_4K, frames);
		if (write(fds[1], frames, bytes) < 0)
			_exit(1);
		for (;;)
			pause();
	}
	close(fds[1]);
	if (read(fds[0], frames, bytes) != (ssize_t)bytes)
		mo_die("the child does not answer");
	close(fds[0]);
	return pid;
}

static void *kill_soon(void *arg)
{
	pid_t *pid = arg;

	usleep(mo_seed() % 2000);
	kill(*pid, SIGKILL);
	return NULL;
}

/* One of the two owners ends in the middle of an exchange. */
int mo_exchange_ended(void)
{
	__u64 frames[PAGES];
	struct mo_pair pair;
	pthread_t thread;
	pid_t pid;
	int i, nr;

	mo_pair_map(&pair, PAGES * SZ_4K, SZ_4K);
	for (i = 0; i < ENDED_ROUNDS; i++) {
		pid = start_child(&pair, frames, ROOT_GROUP);
		if (pthread_create(&thread, NULL, kill_soon, &pid))
			mo_die("cannot start a thread");
		for (nr = 0; nr < PAGES; nr++) {
			__u64 own = mo_frame(pair.a.mem + nr * SZ_4K);

			if (own)
				mo_exchange_frames(own, frames[nr]);
		}
		pthread_join(thread, NULL);
		if (waitpid(pid, NULL, 0) != pid)
			mo_die("the child does not end");
	}
	return mo_pair_verdict(&pair);
}

/* Bytes of anonymous memory that a cgroup has on a node. */
static long long anon_on(int group, int node)
{
	char text[4096], key[16], *line, *at;

	mo_read(group_file(group, "memory.numa_stat"), text, sizeof(text));
	line = strstr(text, "anon ");
	snprintf(key, sizeof(key), " N%d=", node);
	at = line ? strstr(line, key) : NULL;
	if (!at)
		mo_die("no anon of node %d in memory.numa_stat", node);
	return atoll(at + strlen(key));
}

/*
 * Wait until a cgroup has about this much memory on a node: the kernel sums up
 * statistics from time to time, and the process has other memory, too.
 */
static bool becomes(int group, int node, long long bytes)
{
	long long now, until = now_us() + 1000LL * FLUSHED_MS;

	do {
		now = anon_on(group, node);
		if (llabs(now - bytes) < GROUP_BYTES / 4)
			return true;
		usleep(100000);
	} while (now_us() < until);
	printf("# cgroup %d has %lld bytes on node %d, not %lld\n", group, now,
	       node, bytes);
	return false;
}

/* This process and its child exchange all pages of an area. */
static bool charged_in_groups(struct mo_pair *pair)
{
	static __u64 frames[GROUP_BYTES / SZ_4K];
	pid_t pid = start_child(pair, frames, 1);
	long long first, second;
	bool ok;
	size_t i;

	ok = becomes(1, mo_nodes[1], GROUP_BYTES);
	first = anon_on(0, mo_nodes[0]);
	second = anon_on(0, mo_nodes[1]);
	for (i = 0; i < GROUP_BYTES / SZ_4K; i++)
		if (mo_exchange_frames(mo_pfn(pair->a.mem + i * SZ_4K),
				       frames[i]))
			mo_die("cannot exchange page %zu", i);
	ok &= becomes(0, mo_nodes[0], first - GROUP_BYTES);
	ok &= becomes(0, mo_nodes[1], second + GROUP_BYTES);
	ok &= becomes(1, mo_nodes[0], GROUP_BYTES);
	ok &= becomes(1, mo_nodes[1], 0);
	kill(pid, SIGKILL);
	if (waitpid(pid, NULL, 0) != pid)
		mo_die("the child does not end");
	return ok && becomes(1, mo_nodes[0], 0);
}

/*
 * The charges follow their owners.  If they did not, the kernel would also
 * report an underflow when the pages are freed.
 */
int mo_exchange_charged(void)
{
	const char *why_not = groups_make();
	struct mo_pair pair;
	bool ok;

	if (why_not)
		return mo_skip(why_not);
	child_enter(0);
	mo_pair_map(&pair, GROUP_BYTES, SZ_4K);
	ok = charged_in_groups(&pair);
	child_enter(ROOT_GROUP);
	groups_remove();
	return ok ? mo_pair_verdict(&pair) : DAMAGED;
}
