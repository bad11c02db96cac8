// SPDX-License-Identifier: GPL-2.0-only
/*
 * Tests each caller that migrates memory.  The engine copies if engine_of has
 * an engine for the caller's reason, else the CPU copies.  All memory must
 * arrive intact, though a thread writes to it.
 *
 * ENGINE=NAME in the environment selects that engine instead of mtcopy.  If
 * this engine fails some descriptors (fail_every of dmasim), the CPU may copy a
 * part.
 *
 * Some callers need memory that can be removed, or a second tier.  On a machine
 * without these, their tests are skipped.
 */
#include "../../kselftest_harness.h"
#include "mo_callers.h"
#include "mo_util.h"

/* Emulated machines and debug kernels are slow. */
#define TIMEOUT 600

static const char *set_up(void)
{
	const char *why_not = mo_cannot_run();

	if (why_not)
		return why_not;
	if (!mo_caller_engine_is_there())
		return "the engine is not available";
	mo_reset();
	/* Without this, the core would leave out an engine that is slow. */
	mo_set_limit("max_unmapped_us", 0);
	return NULL;
}

FIXTURE(caller)
{
};

FIXTURE_VARIANT(caller)
{
	const struct mo_caller *caller;
};

FIXTURE_VARIANT_ADD(caller, move_pages)
{
	.caller = &mo_move_pages_call,
};

FIXTURE_VARIANT_ADD(caller, mbind)
{
	.caller = &mo_mbind_call,
};

FIXTURE_VARIANT_ADD(caller, migrate_pages)
{
	.caller = &mo_migrate_pages_call,
};

FIXTURE_VARIANT_ADD(caller, cpuset)
{
	.caller = &mo_cpuset,
};

FIXTURE_VARIANT_ADD(caller, demotion)
{
	.caller = &mo_demotion,
};

FIXTURE_VARIANT_ADD(caller, demotion_other_lru)
{
	.caller = &mo_demotion_other_lru,
};

FIXTURE_VARIANT_ADD(caller, numa_balancing)
{
	.caller = &mo_numa_balancing,
};

FIXTURE_VARIANT_ADD(caller, compaction)
{
	.caller = &mo_compaction,
};

FIXTURE_VARIANT_ADD(caller, hot_unplug)
{
	.caller = &mo_hot_unplug,
};

FIXTURE_VARIANT_ADD(caller, longterm_pin)
{
	.caller = &mo_longterm_pin,
};

FIXTURE_VARIANT_ADD(caller, contig_alloc)
{
	.caller = &mo_contig_alloc,
};

FIXTURE_SETUP(caller)
{
	const char *why_not = set_up();

	if (why_not)
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(caller)
{
	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_reset();
}

TEST_F_TIMEOUT(caller, is_offloaded, TIMEOUT)
{
	struct mo_outcome outcome = mo_trips_with(variant->caller);

	if (outcome.why_not)
		SKIP(return, "%s", outcome.why_not);
	EXPECT_TRUE(outcome.arrived);
	EXPECT_TRUE(outcome.intact);
	EXPECT_TRUE(mo_is_by_engine(&outcome));
}

TEST_F_TIMEOUT(caller, is_not_offloaded, TIMEOUT)
{
	struct mo_outcome outcome = mo_trip_without(variant->caller);

	if (outcome.why_not)
		SKIP(return, "%s", outcome.why_not);
	EXPECT_TRUE(outcome.arrived);
	EXPECT_TRUE(outcome.intact);
	EXPECT_EQ(outcome.by.engine_folios, 0);
	EXPECT_EQ(outcome.by.engine_bytes, 0);
}

/* The CPU must read memory that is about to fail, whatever engine_of says. */
FIXTURE(failing_memory)
{
};

FIXTURE_VARIANT(failing_memory)
{
	const char *engine;	/* for all reasons that have one */
};

FIXTURE_VARIANT_ADD(failing_memory, all_reasons)
{
	.engine = "default",
};

FIXTURE_VARIANT_ADD(failing_memory, no_reason)
{
	.engine = "none",
};

FIXTURE_SETUP(failing_memory)
{
	const char *why_not = set_up();

	if (why_not)
		SKIP(return, "%s", why_not);
}

FIXTURE_TEARDOWN(failing_memory)
{
	if (mo_exists(PATH_OFFLOAD "engine"))
		mo_reset();
}

TEST_F_TIMEOUT(failing_memory, is_not_offloaded, TIMEOUT)
{
	struct mo_outcome outcome;

	mo_select_for_all(variant->engine);
	outcome = mo_trip_once(&mo_soft_offline);
	if (outcome.why_not)
		SKIP(return, "%s", outcome.why_not);
	EXPECT_TRUE(outcome.arrived);
	EXPECT_TRUE(outcome.intact);
	EXPECT_EQ(outcome.by.engine_folios, 0);
}

TEST_HARNESS_MAIN
