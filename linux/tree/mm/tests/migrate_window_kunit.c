// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of how a list is cut into windows.  Included by
 * mm/migrate_offload_window.c, so that static functions are within reach.
 */

#include <kunit/test.h>
#include <linux/sizes.h>

#include "../migrate_offload_engine.h"

/* More than any list has. */
#define MO_ALL_FOLIOS 100000U

static int mo_test_stream_submit(struct migrate_copy_stream *stream,
				 struct migrate_copy_batch *batch)
{
	return -EOPNOTSUPP;
}

static const struct migrate_engine_ops mo_test_stream_ops = {
	.version = 3,
	.submit = mo_test_stream_submit,
};

static const struct migrate_engine_ops mo_test_plain_ops = {
	.version = 3,
};

static struct migrate_engine mo_test_stream_engine = {
	.ops = &mo_test_stream_ops,
};

static struct migrate_engine mo_test_plain_engine = {
	.ops = &mo_test_plain_ops,
};

/* A call of compaction with a block of 2 MiB, which one window could take. */
static struct migrate_windows *mo_test_windows(struct kunit *test)
{
	struct migrate_windows *w = kunit_kzalloc(test, sizeof(*w), GFP_KERNEL);

	KUNIT_ASSERT_NOT_NULL(test, w);
	w->paces = kunit_kzalloc(test, sizeof(*w->paces), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, w->paces);
	w->reason = MR_COMPACTION;
	w->engine = &mo_test_stream_engine;
	w->total_bytes = SZ_2M;
	w->plan.folios = MO_ALL_FOLIOS;
	w->plan.max_windows = 2;
	w->plan.streaming = true;
	return w;
}

struct mo_divide_case {
	const char *name;
	size_t total_bytes;
	unsigned int order;
	unsigned int max_windows;
	unsigned int planned;
	unsigned int folios;
};

#define MO_PAGES(nr) ((size_t)(nr) << PAGE_SHIFT)

static const struct mo_divide_case mo_divide_cases[] = {
	{ "by two", MO_PAGES(512), 0, 2, MO_ALL_FOLIOS, 256 },
	{ "by three, the last is smaller", MO_PAGES(512), 0, 3, MO_ALL_FOLIOS, 171 },
	{ "by four", MO_PAGES(512), 0, 4, MO_ALL_FOLIOS, 128 },
	{ "no smaller than worth it", MO_PAGES(512), 0, 8, MO_ALL_FOLIOS, 128 },
	{ "small lists stay whole", MO_PAGES(32), 0, 2, MO_ALL_FOLIOS, 128 },
	{ "folios, not pages", MO_PAGES(512), 1, 2, MO_ALL_FOLIOS, 128 },
	{ "one window", MO_PAGES(512), 0, 1, MO_ALL_FOLIOS, 512 },
	{ "never more than planned", MO_PAGES(512), 0, 2, 50, 50 },
};

KUNIT_ARRAY_PARAM_DESC(mo_divide, mo_divide_cases, name);

static void mo_test_divide(struct kunit *test)
{
	const struct mo_divide_case *param = test->param_value;
	struct migrate_windows *w = mo_test_windows(test);

	w->total_bytes = param->total_bytes;
	w->order = param->order;
	w->plan.max_windows = param->max_windows;
	w->plan.folios = param->planned;
	migrate_windows_divide(w);
	KUNIT_EXPECT_EQ(test, w->plan.folios, param->folios);
}

/* Where nothing is under way meanwhile, or the list is long, it would only cost. */
static void mo_test_divide_not(struct kunit *test)
{
	struct migrate_windows *w;
	int i;

	for (i = 0; i < 6; i++) {
		w = mo_test_windows(test);
		if (i == 0)
			w->reason = MR_SYSCALL;
		if (i == 1)
			w->plan.streaming = false;
		if (i == 2)
			w->paces = NULL;
		if (i == 3)
			w->engine = &mo_test_plain_engine;
		if (i == 4)
			w->by_cpu = true;
		if (i == 5)
			w->declined = true;
		migrate_windows_divide(w);
		KUNIT_EXPECT_EQ_MSG(test, w->plan.folios, MO_ALL_FOLIOS,
				    "case %d", i);
	}
}

static struct kunit_case migrate_window_test_cases[] = {
	KUNIT_CASE_PARAM(mo_test_divide, mo_divide_gen_params),
	KUNIT_CASE(mo_test_divide_not),
	{}
};

static struct kunit_suite migrate_window_test_suite = {
	.name = "migrate_window",
	.test_cases = migrate_window_test_cases,
};

kunit_test_suite(migrate_window_test_suite);
