// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "mo_area.h"
#include "mo_damon.h"
#include "mo_util.h"

#define SAMPLE_US 5000
#define AGGREGATION_US 20000
/* Debug kernels are slow. */
#define WAIT_TRIES 6000
#define WAIT_US 10000

const char *mo_damon_cannot_run(void)
{
	if (!mo_exists(PATH_DAMON "nr_kdamonds"))
		return "this kernel has no DAMON";
	if (mo_read_number(PATH_DAMON "nr_kdamonds"))
		return "another program uses DAMON";
	return NULL;
}

/*
 * A kdamond takes the lock of its files to look for a command, and while it
 * executes one.  Accesses return -EBUSY meanwhile.
 */
static bool is_busy(int ret, int *tries)
{
	if (ret != -EBUSY || ++*tries == WAIT_TRIES)
		return false;
	usleep(WAIT_US);
	return true;
}

static int try_write(const char *path, const char *text)
{
	int tries = 0, ret;

	do
		ret = mo_try_write(path, text);
	while (is_busy(ret, &tries));
	return ret;
}

static void write_surely(const char *path, const char *text)
{
	int ret = try_write(path, text);

	if (ret)
		mo_die("cannot write '%s' to %s: %s", text, path,
		       strerror(-ret));
}

static void set_context(const char *file, const char *value)
{
	char path[128];

	snprintf(path, sizeof(path), PATH_CONTEXT "%s", file);
	write_surely(path, value);
}

static void set_context_number(const char *file, unsigned long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", value);
	set_context(file, text);
}

static void set_intervals_us(unsigned long sample, unsigned long aggregation)
{
	set_context_number("monitoring_attrs/intervals/sample_us", sample);
	set_context_number("monitoring_attrs/intervals/aggr_us", aggregation);
}

void mo_damon_set_interval_us(unsigned long us)
{
	set_intervals_us(us, us);
}

void mo_damon_set_target(pid_t pid)
{
	set_context_number("targets/0/pid_target", pid);
}

void mo_damon_set_targets(unsigned int nr, const pid_t *pids,
			  const struct mo_area *area)
{
	char file[64];
	unsigned int i;

	set_context_number("targets/nr_targets", nr);
	for (i = 0; i < nr; i++) {
		snprintf(file, sizeof(file), "targets/%u/pid_target", i);
		set_context_number(file, pids[i]);
		snprintf(file, sizeof(file), "targets/%u/regions/nr_regions", i);
		set_context_number(file, 1);
		snprintf(file, sizeof(file), "targets/%u/regions/0/start", i);
		set_context_number(file, (uintptr_t)area->mem);
		snprintf(file, sizeof(file), "targets/%u/regions/0/end", i);
		set_context_number(file, (uintptr_t)area->mem + area->bytes);
	}
}

void mo_damon_set(const char *file, const char *value)
{
	char path[160];

	snprintf(path, sizeof(path), PATH_SCHEME "%s", file);
	write_surely(path, value);
}

void mo_damon_set_number(const char *file, long long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", value);
	mo_damon_set(file, text);
}

void mo_damon_setup(const char *ops, const char *action, unsigned long start,
		    unsigned long end)
{
	mo_write(PATH_DAMON "nr_kdamonds", "1");
	mo_write(PATH_DAMON "0/contexts/nr_contexts", "1");
	set_context("operations", ops);
	set_intervals_us(SAMPLE_US, AGGREGATION_US);
	set_context_number("monitoring_attrs/intervals/update_us",
			   10 * AGGREGATION_US);
	/*
	 * Have few regions: in each sample, DAMON clears the accessed bit of
	 * one page of each region.
	 */
	set_context_number("monitoring_attrs/nr_regions/min", 3);
	set_context_number("monitoring_attrs/nr_regions/max", 6);

	set_context("targets/nr_targets", "1");
	if (strcmp(ops, "paddr"))
		mo_damon_set_target(getpid());
	if (start < end) {
		set_context("targets/0/regions/nr_regions", "1");
		set_context_number("targets/0/regions/0/start", start);
		set_context_number("targets/0/regions/0/end", end);
	}

	set_context("schemes/nr_schemes", "1");
	mo_damon_set("action", action);
	mo_damon_set("access_pattern/sz/max", "18446744073709551615");
	mo_damon_set("access_pattern/nr_accesses/max", "4294967295");
	mo_damon_set("access_pattern/age/max", "4294967295");
}

void mo_damon_set_dests(unsigned int nr, const int *nodes,
			const unsigned int *weights)
{
	char file[64];
	unsigned int i;

	mo_damon_set_number("dests/nr_dests", nr);
	for (i = 0; i < nr; i++) {
		snprintf(file, sizeof(file), "dests/%u/id", i);
		mo_damon_set_number(file, nodes[i]);
		snprintf(file, sizeof(file), "dests/%u/weight", i);
		mo_damon_set_number(file, weights[i]);
	}
}

int mo_damon_command(const char *command)
{
	return try_write(PATH_DAMON "0/state", command);
}

bool mo_damon_is_on(void)
{
	char state[16] = "";
	int tries = 0, ret;

	do
		ret = mo_try_read(PATH_DAMON "0/state", state, sizeof(state));
	while (is_busy(ret, &tries));
	if (ret)
		mo_die("cannot read the state of the kdamond: %s", strerror(-ret));
	return !strcmp(state, "on\n");
}

void mo_damon_stats(struct mo_damon_stats *stats)
{
	if (mo_damon_command("update_schemes_stats"))
		mo_die("the kdamond gives no statistics");
	stats->nr_tried = mo_read_number(PATH_SCHEME "stats/nr_tried");
	stats->sz_tried = mo_read_number(PATH_SCHEME "stats/sz_tried");
	stats->nr_applied = mo_read_number(PATH_SCHEME "stats/nr_applied");
	stats->sz_applied = mo_read_number(PATH_SCHEME "stats/sz_applied");
	stats->qt_exceeds = mo_read_number(PATH_SCHEME "stats/qt_exceeds");
}

bool mo_damon_stops(void)
{
	int tries;

	for (tries = 0; tries < WAIT_TRIES && mo_damon_is_on(); tries++)
		usleep(WAIT_US);
	return tries < WAIT_TRIES;
}

/*
 * Return the last statistics, too: a kdamond takes a tenth of a second to
 * answer another request.
 */
bool mo_damon_settles_at(size_t bytes, struct mo_damon_stats *now)
{
	struct mo_damon_stats since;
	int tries;

	mo_damon_stats(&since);
	for (tries = 0; tries < WAIT_TRIES; tries++) {
		mo_damon_stats(now);
		if (now->sz_applied != since.sz_applied)
			since = *now;
		else if (now->sz_tried >= since.sz_tried + 2 * (long long)bytes)
			return true;
	}
	return false;
}

bool mo_damon_settles(size_t bytes)
{
	struct mo_damon_stats now;

	return mo_damon_settles_at(bytes, &now);
}

bool mo_damon_moves_nothing(size_t bytes)
{
	struct mo_damon_stats since, now;
	bool settled;

	mo_damon_stats(&since);
	settled = mo_damon_settles_at(bytes, &now);
	if (settled && now.sz_applied == since.sz_applied)
		return true;
	printf("# %s: of %lld bytes %lld were moved\n",
	       settled ? "settled" : "not settled",
	       now.sz_tried - since.sz_tried, now.sz_applied - since.sz_applied);
	return false;
}

void mo_damon_remove(void)
{
	if (!mo_exists(PATH_DAMON "nr_kdamonds") ||
	    !mo_read_number(PATH_DAMON "nr_kdamonds"))
		return;
	if (mo_damon_is_on())
		mo_damon_command("off");
	write_surely(PATH_DAMON "nr_kdamonds", "0");
}
