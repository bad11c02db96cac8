// SPDX-License-Identifier: GPL-2.0-only
/*
 * dcbm on the simulated DMA engine: memory arrives intact and in time, whatever
 * fails in the engine.
 *
 * Each test reloads both modules and moves memory there and back, while threads
 * write to this memory.  Then the test checks the content, the node, the
 * counters and the state of each channel.
 */
#include <errno.h>
#include <linux/mempolicy.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_area.h"
#include "mo_dcbm.h"
#include "mo_util.h"

#define NR_LARGE 4

struct mo_area small, large;
static struct mo_area other;
static bool failed;

void expect_at(bool ok, const char *what, const char *file, int line)
{
	if (ok)
		return;
	failed = true;
	printf("# %s:%d: not true: %s\n", file, line, what);
}

long long now_ms(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec * 1000LL + now.tv_nsec / 1000000;
}

long long dcbm_number(const char *name)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_DCBM "%s", name);
	return mo_read_number(path);
}

/* Returns NULL if there is no such file. */
static const char *find_chan_file(unsigned int nth, const char *file)
{
	static char path[160];
	int dev;

	for (dev = 0; dev < 64; dev++) {
		snprintf(path, sizeof(path), PATH_DCBM "channels/dma%dchan%u/%s",
			 dev, nth, file);
		if (mo_exists(path))
			return path;
	}
	return NULL;
}

const char *chan_file(unsigned int nth, const char *file)
{
	const char *path = find_chan_file(nth, file);

	if (!path)
		mo_die("dcbm has no channel %u", nth);
	return path;
}

bool chan_exists(unsigned int nth)
{
	return find_chan_file(nth, "state");
}

long long chan_number(unsigned int nth, const char *file)
{
	return mo_read_number(chan_file(nth, file));
}

bool chan_is(unsigned int nth, const char *state)
{
	char now[32];

	mo_read(chan_file(nth, "state"), now, sizeof(now));
	return !strncmp(now, state, strlen(state));
}

static const char *sim_file(unsigned int chan, const char *name)
{
	static char path[128];

	snprintf(path, sizeof(path), PATH_SIM "chan%u/%s", chan, name);
	return path;
}

void sim_write(unsigned int chan, const char *name, const char *text)
{
	mo_write(sim_file(chan, name), text);
}

long long sim_number(unsigned int chan, const char *name)
{
	return mo_read_number(sim_file(chan, name));
}

void fault(unsigned int chan, const char *name, long long value)
{
	mo_write_number(sim_file(chan, name), value);
}

void fault_everywhere(const char *name, long long value)
{
	unsigned int i;

	for (i = 0; i < NR_CHANS; i++)
		fault(i, name, value);
}

void load(const char *sim, const char *dcbm)
{
	char text[256];
	const char *const command[] = { "sh", "-c", text, NULL };

	snprintf(text, sizeof(text),
		 "modprobe dmasim channels=%d %s && modprobe dcbm timeout_ms=%d %s",
		 NR_CHANS, sim, PATIENT_MS, dcbm);
	if (mo_run(command))
		mo_die("no dmasim, or no dcbm");
	mo_select("none");
	/* This activates dcbm, as no other engine is active. */
	mo_write(PATH_DCBM "offloading", "1");
	mo_read(PATH_OFFLOAD "engine", text, sizeof(text));
	expect(!strcmp(text, "dcbm\n") || !strcmp(text, "dcbm"));
}

void unload(void)
{
	const char *const remove[] = { "rmmod", "dcbm", "dmasim", NULL };

	mo_select("none");
	expect(!mo_run(remove));
	expect(mo_read_number(PATH_OFFLOAD "held_folios") == 0);
}

/* Writers change one page after another, and note the new content. */
static atomic_bool stop_writers;
static pthread_mutex_t shadow_lock = PTHREAD_MUTEX_INITIALIZER;

static void *write_all_the_time(void *arg)
{
	struct mo_area *area = arg;
	size_t i, page;

	for (i = 0; !stop_writers; i++) {
		page = mo_mix(i, 3) % (area->bytes / SZ_4K);
		pthread_mutex_lock(&shadow_lock);
		memset(area->mem + page * SZ_4K, i & 0xff, SZ_4K);
		mo_expect_byte(area, page, i & 0xff);
		pthread_mutex_unlock(&shadow_lock);
	}
	return NULL;
}

static bool content_ok(const struct mo_area *area)
{
	bool ok;

	pthread_mutex_lock(&shadow_lock);
	ok = mo_content_ok(area);
	pthread_mutex_unlock(&shadow_lock);
	return ok;
}

void set_timeout_ms(unsigned int ms)
{
	mo_write_number(PATH_DCBM "parameters/timeout_ms", ms);
}

void move_with_timeout(struct mo_area *area)
{
	set_timeout_ms(TIMEOUT_MS);
	mo_move_once(area, mo_nodes[1]);
	set_timeout_ms(PATIENT_MS);
}

unsigned long move_area(struct mo_area *area)
{
	unsigned long left;

	left = mo_move(area, mo_nodes[1]);
	expect(content_ok(area));
	left += mo_move(area, mo_nodes[0]);
	expect(content_ok(area));
	return left;
}

unsigned long move_all(void)
{
	pthread_t writers[2];
	unsigned long left;

	stop_writers = false;
	if (pthread_create(&writers[0], NULL, write_all_the_time, &small) ||
	    pthread_create(&writers[1], NULL, write_all_the_time, &large))
		mo_die("cannot start threads: %m");
	left = move_area(&small) + move_area(&large);
	stop_writers = true;
	pthread_join(writers[0], NULL);
	pthread_join(writers[1], NULL);
	return left;
}

static void test_copies(void)
{
	unsigned int i;

	load("bandwidth_mbps=0", "");
	expect(move_area(&large) == 0);
	expect(dcbm_number("folios_migrated") == 2 * NR_LARGE);
	expect(move_all() == 0);
	expect(dcbm_number("folios_migrated") > 4 * NR_LARGE);
	expect(dcbm_number("folios_failures") == 0);
	/* dcbm spreads a 2M folio over all channels. */
	for (i = 0; i < NR_CHANS; i++) {
		expect(chan_number(i, "bytes") > 0);
		expect(chan_number(i, "errors") == 0);
		expect(chan_is(i, "idle"));
	}
	unload();
}

/* A minimal device: few descriptors, odd limits, out-of-order completion. */
static void test_limits(void)
{
	load("descriptors=2 max_seg_bytes=12288 out_of_order=1", "");
	expect(move_all() == 0);
	expect(dcbm_number("folios_failures") == 0);
	expect(dcbm_number("folios_migrated") > 0);
	unload();
}

static void test_fail(void)
{
	load("bandwidth_mbps=0", "max_failures=1000000");
	fault_everywhere("fail_every", 5);
	expect(move_all() == 0);
	fault_everywhere("fail_every", 0);
	/* Some folios of a batch fail, and all others of the batch succeed. */
	expect(dcbm_number("folios_failures") > 0);
	expect(dcbm_number("folios_migrated") >
	       dcbm_number("folios_failures"));
	unload();
}

static void test_refuse(void)
{
	load("bandwidth_mbps=0", "");
	fault_everywhere("refuse_every", 3);
	expect(move_all() == 0);
	fault_everywhere("refuse_every", 0);
	expect(dcbm_number("folios_migrated") > 0);
	unload();
}

static void test_lose_irq(void)
{
	long long start;

	load("bandwidth_mbps=0", "");
	fault(1, "lose_irq_nth", 1);
	start = now_ms();
	move_with_timeout(&large);
	expect(now_ms() - start < 2 * TIMEOUT_MS);
	expect(mo_move(&large, mo_nodes[1]) == 0);
	expect(mo_content_ok(&large));
	/* The next move uses all channels again. */
	expect(move_all() == 0);
	expect(dcbm_number("held_folios") == 0);
	expect(chan_is(1, "idle"));
	unload();
}

/*
 * dcbm asks the driver, and so learns of each copy.  But a channel that never
 * interrupts is too slow, so dcbm retires it.
 */
static void test_lose_irqs(void)
{
	int i;

	load("bandwidth_mbps=0", "max_failures=4");
	fault(1, "lose_irq_every", 1);
	for (i = 0; i < 50 && !chan_is(1, "retired"); i++)
		expect(move_area(&large) == 0);
	fault(1, "lose_irq_every", 0);
	expect(chan_is(1, "retired"));
	expect(chan_number(1, "errors") == 4);
	expect(chan_number(1, "timeouts") == 0);
	expect(dcbm_number("folios_failures") == 0);
	expect(dcbm_number("held_folios") == 0);
	expect(move_all() == 0);
	/* No later interrupt runs the callbacks, and dcbm waits for them. */
	expect(mo_try_write(chan_file(1, "reset"), "1") == -EBUSY);
	reset_stopped(1);
	unload();
}

/* The mover moves memory until this is set. */
static atomic_bool stop_moving;
static atomic_uint nr_moves;

static void *move_all_the_time(void *unused)
{
	while (!stop_moving) {
		expect(move_area(&small) == 0);
		expect(move_area(&large) == 0);
		nr_moves++;
	}
	return unused;
}

pthread_t start_moving(void)
{
	pthread_t mover;

	stop_moving = false;
	nr_moves = 0;
	if (pthread_create(&mover, NULL, move_all_the_time, NULL))
		mo_die("cannot start a thread: %m");
	return mover;
}

void end_moving(pthread_t mover)
{
	unsigned int moved = nr_moves;

	/* Two more moves show that the engine still works. */
	while (nr_moves < moved + 2)
		usleep(1000);
	stop_moving = true;
	pthread_join(mover, NULL);
}

/* Instead of waiting, the CPU copies a part.  The channels copy the rest. */
static void test_share(void)
{
	long long share, moved, chans = 0;
	unsigned int i;
	cpu_set_t cpus;

	/*
	 * The channels are so slow that the CPU has time to copy, even in a
	 * debug kernel, which takes up to 20 ms to unmap and move a folio.
	 * With a time limit, the core would leave out such slow channels.
	 */
	load("bandwidth_mbps=5 cpu=1", "");
	mo_set_limit("max_unmapped_us", 0);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	mo_run_on(0);
	for (i = 0; i < 4; i++)
		expect(move_area(&large) == 0);
	share = dcbm_number("cpu_share_bytes");
	moved = dcbm_number("folios_migrated") * SZ_2M;
	for (i = 0; i < NR_CHANS; i++)
		chans += chan_number(i, "bytes");
	expect(dcbm_number("folios_failures") == 0);
	expect(moved == 4 * 2 * NR_LARGE * SZ_2M);
	expect(share > 0);
	expect(share <= moved / 2);
	expect(share + chans == moved);

	mo_write(PATH_DCBM "parameters/cpu_share", "0");
	expect(move_area(&large) == 0);
	expect(dcbm_number("cpu_share_bytes") == share);
	sched_setaffinity(0, sizeof(cpus), &cpus);
	unload();
}

/* Move @other to a node for another reason, which has its own counters. */
static void mbind_other(int node)
{
	unsigned long nodes[16] = {};

	nodes[node / 64] = 1UL << node % 64;
	expect(!syscall(__NR_mbind, other.mem, other.bytes, MPOL_BIND, nodes,
			sizeof(nodes) * 8, MPOL_MF_MOVE));
	expect(content_ok(&other));
}

/*
 * Two tasks want all channels all the time, and dcbm must copy for both.  While
 * one task makes its trips, dcbm copies at least 5 * NR_LARGE folios of the
 * other task.  The rate depends on the host, which may stop either CPU.
 */
static void test_fair(void)
{
	const char *path = PATH_OFFLOAD
		"stats/reasons/mempolicy_mbind/engine_folios";
	long long before = mo_read_number(path), there, had;
	pthread_t mover;
	int i, trips = 0;

	/* Slow channels are always in use by one of the tasks. */
	load("bandwidth_mbps=20", "cpu_share=0");
	had = mo_counter("engine_folios");
	mover = start_moving();
	do {
		mbind_other(mo_nodes[1]);
		mbind_other(mo_nodes[0]);
		there = mo_counter("engine_folios") - had;
	} while (++trips < 10 || (there < 5 * NR_LARGE && trips < 40));
	end_moving(mover);
	/*
	 * dcbm declines a few folios before the first task releases channels.
	 */
	expect(mo_read_number(path) - before >= trips * NR_LARGE);
	expect(there >= 5 * NR_LARGE);
	for (i = 0; i < NR_CHANS; i++)
		expect(chan_is(i, "idle"));
	unload();
}

static void test_administrator(void)
{
	pthread_t mover;
	int i;

	load("bandwidth_mbps=0", "");
	mover = start_moving();
	for (i = 0; i < 20; i++) {
		mo_write_number(PATH_DCBM "nr_dma_chan", 1 + i % NR_CHANS);
		if (i % 4 == 0)
			mo_write(PATH_DCBM "offloading", "0");
		usleep(20000);
		mo_write(PATH_DCBM "offloading", "1");
	}
	end_moving(mover);
	unload();
}

static void test_unload(void)
{
	pthread_t mover;
	int i;

	load("bandwidth_mbps=0", "");
	mover = start_moving();
	for (i = 0; i < 5; i++) {
		usleep(50000);
		unload();
		load("bandwidth_mbps=0", "");
	}
	end_moving(mover);
	unload();
}

static const struct {
	const char *name;
	void (*run)(void);
} tests[] = {
	{ "copies", test_copies },
	{ "limits", test_limits },
	{ "fail", test_fail },
	{ "refuse", test_refuse },
	{ "lose_irq", test_lose_irq },
	{ "lose_irqs", test_lose_irqs },
	{ "late", test_late },
	{ "stall_stopped", test_stall_stopped },
	{ "stall_held", test_stall_held },
	{ "stall_posted", test_stall_posted },
	{ "rejected", test_rejected },
	{ "hidden_errors", test_hidden_errors },
	{ "hidden_and_silent", test_hidden_and_silent },
	{ "kept_at_the_end", test_kept_at_the_end },
	{ "kept_then_late", test_kept_then_late },
	{ "believed", test_believed },
	{ "aborted", test_aborted },
	{ "off_and_on", test_off_and_on },
	{ "share", test_share },
	{ "fair", test_fair },
	{ "administrator", test_administrator },
	{ "unbind", test_unbind },
	{ "vanish", test_vanish },
	{ "left", test_left },
	{ "not_named", test_not_named },
	{ "prep_waits", test_prep_waits },
	{ "refused_length", test_refused_length },
	/* The unload patches running code: see migrate_offload_key. */
	{ "unload", test_unload },
};

/* With arguments, run only the tests of these names. */
static bool wanted(const char *name, int argc, char **argv)
{
	int i;

	for (i = 1; i < argc; i++)
		if (!strcmp(name, argv[i]))
			return true;
	return argc < 2;
}

int main(int argc, char **argv)
{
	const char *why_not;
	size_t i;
	int nr = 0;

	ksft_print_header();
	why_not = mo_cannot_run();
	if (!why_not)
		why_not = mo_map(&small, MO_ANON, SZ_1M, SZ_4K);
	if (!why_not)
		why_not = mo_map(&large, MO_ANON, NR_LARGE * SZ_2M, SZ_2M);
	if (!why_not)
		why_not = mo_map(&other, MO_ANON, NR_LARGE * SZ_2M, SZ_2M);
	if (why_not)
		ksft_exit_skip("%s\n", why_not);
	for (i = 0; i < ARRAY_SIZE(tests); i++)
		nr += wanted(tests[i].name, argc, argv);
	ksft_set_plan(nr);
	for (i = 0; i < ARRAY_SIZE(tests); i++) {
		if (!wanted(tests[i].name, argc, argv))
			continue;
		failed = false;
		/*
		 * The core would leave out an engine that is slow on purpose.
		 */
		mo_set_limit("max_unmapped_us", 0);
		tests[i].run();
		ksft_test_result(!failed, "%s\n", tests[i].name);
		fflush(stdout);
	}
	mo_unmap(&other);
	mo_unmap(&large);
	mo_unmap(&small);
	ksft_finished();
}
