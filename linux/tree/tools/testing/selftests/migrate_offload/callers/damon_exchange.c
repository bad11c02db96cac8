// SPDX-License-Identifier: GPL-2.0-only
/*
 * Two DAMON schemes move memory between two nodes that have no free huge page:
 * migrate_cold down, and migrate_hot up.  Huge pages change places.
 */
#include <stdint.h>
#include <stdio.h>
#include <sys/mman.h>
#include <unistd.h>

#include "../../kselftest_harness.h"
#include "mo_area.h"
#include "mo_damon.h"
#include "mo_exchange.h"
#include "mo_fail.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600
#define BYTES (8 * SZ_2M)
#define WAIT_TRIES 600
#define WAIT_US 100000

/* Targets, which are both in this process. */
enum { COLD, HOT, NR_TARGETS };

FIXTURE(exchange)
{
	struct mo_pair pair;	/* cold memory on the first node, hot on the second */
};

static void set_text(const char *format, unsigned int nr, const char *text)
{
	char path[160], file[96];

	snprintf(file, sizeof(file), format, nr);
	snprintf(path, sizeof(path), PATH_CONTEXT "%s", file);
	mo_write(path, text);
}

static void set(const char *format, unsigned int nr, long long value)
{
	char text[32];

	snprintf(text, sizeof(text), "%lld", value);
	set_text(format, nr, text);
}

/* A scheme for one target: the filter leaves out the other. */
static void setup_scheme(unsigned int nr, const char *action, int node,
			 unsigned int other)
{
	set_text("schemes/%u/action", nr, action);
	set("schemes/%u/target_nid", nr, node);
	set_text("schemes/%u/access_pattern/sz/max", nr, "18446744073709551615");
	set_text("schemes/%u/access_pattern/nr_accesses/max", nr, "4294967295");
	set_text("schemes/%u/access_pattern/age/max", nr, "4294967295");
	set("schemes/%u/filters/nr_filters", nr, 1);
	set_text("schemes/%u/filters/0/type", nr, "target");
	set_text("schemes/%u/filters/0/matching", nr, "Y");
	set("schemes/%u/filters/0/damon_target_idx", nr, other);
}

FIXTURE_SETUP(exchange)
{
	const char *why_not = mo_exchange_cannot();
	const pid_t pids[NR_TARGETS] = { getpid(), getpid() };

	if (!why_not)
		why_not = mo_damon_cannot_run();
	if (why_not)
		SKIP(return, "%s", why_not);
	mo_pair_map(&self->pair, BYTES, SZ_2M);
	why_not = mo_fail_large(MO_2M_ORDER);
	if (why_not)
		SKIP(return, "%s", why_not);
	mo_damon_setup("fvaddr", "migrate_cold", 0, 0);
	mo_damon_set_targets(NR_TARGETS, pids, &self->pair.a);
	set("targets/%u/regions/0/start", HOT, (uintptr_t)self->pair.b.mem);
	set("targets/%u/regions/0/end", HOT, (uintptr_t)self->pair.b.mem + BYTES);
}

FIXTURE_TEARDOWN(exchange)
{
	mo_damon_remove();
	mo_fail_end();
	mo_unmap(&self->pair.a);
	mo_unmap(&self->pair.b);
}

static bool all_whole(const struct mo_area *area)
{
	size_t i;

	for (i = 0; i < area->bytes; i += SZ_2M)
		if (!mo_page_flag(area->mem + i, KPF_COMPOUND_HEAD))
			return false;
	return true;
}

static bool all_right(const struct mo_pair *pair)
{
	return all_whole(&pair->a) && all_whole(&pair->b) &&
		mo_content_ok(&pair->a) && mo_content_ok(&pair->b);
}

/* With both schemes, hot and cold memory changes places. */
TEST_F_TIMEOUT(exchange, of_hot_and_cold, TIMEOUT)
{
	struct mo_pair *pair = &self->pair;
	int tries;

	mo_write(PATH_CONTEXT "schemes/nr_schemes", "2");
	setup_scheme(0, "migrate_cold", mo_nodes[1], HOT);
	setup_scheme(1, "migrate_hot", mo_nodes[0], COLD);
	ASSERT_EQ(mo_damon_command("on"), 0);
	for (tries = 0; tries < WAIT_TRIES; tries++) {
		if (!mo_elsewhere(&pair->b, mo_nodes[0]))
			break;
		usleep(WAIT_US);
	}
	EXPECT_TRUE(mo_damon_settles(BYTES));
	EXPECT_TRUE(mo_pair_is_on(pair, mo_nodes[1], mo_nodes[0]));
	EXPECT_TRUE(all_right(pair));
	/* Only migrate_hot counts what has moved. */
	EXPECT_EQ(mo_damon_command("update_schemes_stats"), 0);
	EXPECT_EQ(mo_read_number(PATH_CONTEXT "schemes/0/stats/sz_applied"), 0);
	EXPECT_EQ(mo_read_number(PATH_CONTEXT "schemes/1/stats/sz_applied"),
		  BYTES);
}

/* Without the other scheme, hot memory finds no place. */
TEST_F_TIMEOUT(exchange, needs_both, TIMEOUT)
{
	struct mo_pair *pair = &self->pair;
	struct mo_damon_stats stats;

	setup_scheme(0, "migrate_hot", mo_nodes[0], COLD);
	ASSERT_EQ(mo_damon_command("on"), 0);
	EXPECT_TRUE(mo_damon_settles_at(BYTES, &stats));
	EXPECT_EQ(stats.sz_applied, 0);
	EXPECT_TRUE(mo_pair_is_on(pair, mo_nodes[0], mo_nodes[1]));
	EXPECT_TRUE(all_right(pair));
}

TEST_HARNESS_MAIN
