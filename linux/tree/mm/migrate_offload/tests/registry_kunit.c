// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of the registry of copy engines.  mm/migrate_offload/registry.c
 * includes this file, which gives access to static functions.
 */

#include <kunit/test.h>
#include <linux/completion.h>
#include <linux/kthread.h>

/*
 * One thread copies with an engine, while another one stops the use of the
 * engine.
 */
static DECLARE_COMPLETION(mo_copy_entered);
static DECLARE_COMPLETION(mo_copy_may_leave);
static DECLARE_COMPLETION(mo_leave_started);
static DECLARE_COMPLETION(mo_leave_done);
static atomic_t mo_copy_left;

static int mo_test_offload_copy(struct list_head *dst_list,
				struct list_head *src_list,
				unsigned int folio_cnt)
{
	/*
	 * Decline batches of tasks that really migrate.  The test's batch is
	 * empty.
	 */
	if (folio_cnt)
		return -EOPNOTSUPP;
	complete(&mo_copy_entered);
	wait_for_completion(&mo_copy_may_leave);
	atomic_set(&mo_copy_left, 1);
	return 0;
}

static int mo_test_engine_submit(struct migrate_copy_stream *stream,
				 struct migrate_copy_batch *batch)
{
	return -EOPNOTSUPP;
}

static struct migrator mo_test_migrator = {
	.name = "kunit-a",
	.offload_copy = mo_test_offload_copy,
};

static struct migrator mo_test_migrator_2 = {
	.name = "kunit-b",
	.offload_copy = mo_test_offload_copy,
};

/* Returns the name of the engine for this reason. */
static const char *mo_engine_for(int reason)
{
	struct migrate_engine *engine;
	const char *name;
	int idx;

	engine = migrate_engine_enter(reason, &idx);
	name = engine ? engine->ops->name : "none";
	migrate_engine_exit(idx);
	return name;
}

/* Skip a test if an engine is active: these tests use all engine slots. */
static void mo_require_no_engine(struct kunit *test)
{
	int reason;

	for (reason = 0; reason < MR_TYPES; reason++)
		if (strcmp(mo_engine_for(reason), "none"))
			kunit_skip(test, "an engine is active, switch it off");
}

static void mo_test_register(struct kunit *test)
{
	struct migrator nameless = { .offload_copy = mo_test_offload_copy };
	struct migrator lazy = { .name = "kunit-c" };
	struct migrator spaced = {
		.name = "kunit c",
		.offload_copy = mo_test_offload_copy,
	};

	mo_require_no_engine(test);
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_offload_register(NULL));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_offload_register(&nameless));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_offload_register(&lazy));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_offload_register(&spaced));

	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_offload_unregister(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_register(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, -EBUSY,
			migrate_offload_register(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, -EBUSY,
			migrate_offload_register(&mo_test_migrator_2));
	/* Only a registered migrator can unregister. */
	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_offload_unregister(&mo_test_migrator_2));
	/*
	 * Another engine cannot replace a driver's migrator, but "none"
	 * switches it off.
	 */
	KUNIT_EXPECT_EQ(test, -EBUSY, migrate_engine_select("cpu"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_unregister(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_offload_unregister(&mo_test_migrator));
}

static void mo_test_register_engine(struct kunit *test)
{
	struct migrate_engine_ops ops = {
		.name = "kunit-d",
		.submit = mo_test_engine_submit,
	};
	struct migrate_engine_ops bad = ops;

	mo_require_no_engine(test);
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(NULL));
	bad.name = "none";
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&bad));
	bad.name = "a-name-that-is-32-letters-long-x";
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&bad));
	bad.name = "kunit-d";
	bad.submit = NULL;
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&bad));

	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_select("kunit-d"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_register(&ops));
	bad.submit = mo_test_engine_submit;
	KUNIT_EXPECT_EQ(test, -EEXIST, migrate_engine_register(&bad));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_unregister(&bad));

	/* An engine is active, so a migrator cannot register. */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("kunit-d"));
	KUNIT_EXPECT_EQ(test, -EBUSY,
			migrate_offload_register(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("kunit-d"));
	/* A driver cannot replace the active engine by its own switch. */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_activate(&ops));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	KUNIT_EXPECT_EQ(test, -EBUSY, migrate_engine_activate(&ops));
	migrate_engine_deactivate(&ops);
	KUNIT_EXPECT_EQ(test, -EBUSY,
			migrate_offload_register(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_activate(&bad));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_activate(&ops));
	KUNIT_EXPECT_EQ(test, -EBUSY,
			migrate_offload_register(&mo_test_migrator));
	migrate_engine_deactivate(&ops);
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_register(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_unregister(&mo_test_migrator));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("kunit-d"));
	/* A failed write changes nothing. */
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_select("no-such-one"));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_select(""));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_unregister(&ops));
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_select("kunit-d"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
}

static bool mo_named(int reason, const char *name)
{
	char *buf = kzalloc(PAGE_SIZE, GFP_KERNEL);
	bool same;

	if (!buf)
		return false;
	/* sysfs, too, passes a page for the name and a newline. */
	migrate_engine_name_for(reason, buf);
	same = sysfs_streq(buf, name);
	kfree(buf);
	return same;
}

/* One reason has its own engine, and all others another one or none. */
static void mo_test_engine_for_reason(struct kunit *test)
{
	struct migrate_engine_ops ops = {
		.name = "kunit-e",
		.submit = mo_test_engine_submit,
	};

	mo_require_no_engine(test);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_engine_select_for(MR_DEMOTION, "kunit-e"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_register(&ops));
	KUNIT_EXPECT_TRUE(test, mo_named(MR_DEMOTION, "default"));
	KUNIT_EXPECT_EQ(test, 0,
			migrate_engine_select_for(MR_DEMOTION, "kunit-e"));
	KUNIT_EXPECT_TRUE(test, mo_named(MR_DEMOTION, "kunit-e"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DEMOTION), "kunit-e");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "none");

	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DEMOTION), "kunit-e");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "cpu");
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select_for(MR_SYSCALL, "none"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "none");
	KUNIT_EXPECT_TRUE(test, mo_named(MR_SYSCALL, "none"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DAMON), "cpu");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_MEMORY_FAILURE), "none");
	KUNIT_EXPECT_EQ(test, 0,
			migrate_engine_select_for(MR_SYSCALL, "default"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "cpu");
	/* A failed write changes nothing. */
	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_engine_select_for(MR_DEMOTION, ""));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DEMOTION), "kunit-e");

	/* An engine that unregisters is inactive for all reasons. */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_unregister(&ops));
	KUNIT_EXPECT_TRUE(test, mo_named(MR_DEMOTION, "default"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DEMOTION), "cpu");
	/* "none" in general ends all engines, those of reasons too. */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select_for(MR_DAMON, "cpu"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select_for(MR_SYSCALL, "none"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DAMON), "none");
	KUNIT_EXPECT_TRUE(test, mo_named(MR_DAMON, "default"));
	/* A reason that was excluded stays so when an engine comes back. */
	KUNIT_EXPECT_TRUE(test, mo_named(MR_SYSCALL, "none"));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "none");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DAMON), "cpu");
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_EQ(test, 0,
			migrate_engine_select_for(MR_SYSCALL, "default"));
}

/*
 * A list holds its engine while the engine has folios of the list, and takes no
 * other engine.
 */
static void mo_test_hold_engine(struct kunit *test)
{
	struct migrate_session *s = kunit_kzalloc(test, sizeof(*s), GFP_KERNEL);

	mo_require_no_engine(test);
	KUNIT_ASSERT_NOT_NULL(test, s);
	s->reason = MR_SYSCALL;
	KUNIT_EXPECT_FALSE(test, migrate_session_hold(s));
	KUNIT_EXPECT_FALSE(test, s->leaving);

	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	s->engine = engine_of(&migrate_cpu_engine_ops);
	KUNIT_EXPECT_TRUE(test, migrate_session_hold(s));
	KUNIT_EXPECT_TRUE(test, migrate_session_hold(s));
	migrate_session_release(s);
	KUNIT_EXPECT_FALSE(test, s->held);
	migrate_session_release(s);
	/*
	 * The change of the engine does not wait, and the list notices the
	 * change.
	 */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_FALSE(test, migrate_session_hold(s));
	KUNIT_EXPECT_TRUE(test, s->leaving);
	/* The list must not take a later engine. */
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	KUNIT_EXPECT_FALSE(test, migrate_session_hold(s));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
}

static int mo_test_copier(void *arg)
{
	struct migrate_copy_batch *batch = arg;
	struct migrate_copy_stream stream = {};
	struct migrate_engine *engine;
	int idx, rc = -ENODEV;

	engine = migrate_engine_enter(MR_SYSCALL, &idx);
	if (engine)
		rc = migrate_engine_submit(engine, &stream, batch);
	migrate_engine_exit(idx);
	return rc;
}

static int mo_test_unregister_it(void)
{
	return migrate_offload_unregister(&mo_test_migrator);
}

/* Make the reason of mo_test_copier() stop using the general engine. */
static int mo_test_no_engine_for_reason(void)
{
	return migrate_engine_select_for(MR_SYSCALL, "none");
}

static int mo_test_other_engine_for_reason(void)
{
	return migrate_engine_select_for(MR_SYSCALL, "cpu");
}

/* Call @arg, which stops the use of an engine. */
static int mo_test_leaver(void *arg)
{
	int (*leave)(void) = arg;
	int rc;

	complete(&mo_leave_started);
	rc = leave();
	/* No copy may still be in the engine. */
	if (!rc && !atomic_read(&mo_copy_left))
		rc = -EBUSY;
	complete(&mo_leave_done);
	return rc;
}

/* Start a thread whose exit code stays readable by kthread_stop(). */
static struct task_struct *mo_test_thread(struct kunit *test,
					  int (*fn)(void *arg), void *arg)
{
	struct task_struct *thread = kthread_create(fn, arg, "mo-test");

	KUNIT_ASSERT_FALSE(test, IS_ERR(thread));
	get_task_struct(thread);
	wake_up_process(thread);
	return thread;
}

static bool mo_test_wants_large(int dst_nid, size_t bytes)
{
	return bytes >= PMD_SIZE;
}

/* No engine copies from before devices are suspended until they are resumed. */
static void mo_test_suspend(struct kunit *test)
{
	mo_require_no_engine(test);
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("cpu"));
	engines_pm_event(&engines_pm_nb, PM_SUSPEND_PREPARE, NULL);
	KUNIT_EXPECT_STREQ(test, "none", mo_engine_for(MR_DAMON));
	engines_pm_event(&engines_pm_nb, PM_POST_SUSPEND, NULL);
	KUNIT_EXPECT_STREQ(test, "cpu", mo_engine_for(MR_DAMON));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
}

/* An engine without wants() gets every batch. */
static void mo_test_wants(struct kunit *test)
{
	struct migrate_engine_ops ops = { .wants = mo_test_wants_large };
	struct migrate_engine engine = { .ops = &ops };

	KUNIT_EXPECT_TRUE(test, migrate_engine_wants(&engine, 0, PMD_SIZE));
	KUNIT_EXPECT_FALSE(test, migrate_engine_wants(&engine, 0, PAGE_SIZE));
	ops.wants = NULL;
	KUNIT_EXPECT_TRUE(test, migrate_engine_wants(&engine, 0, PAGE_SIZE));
}

/*
 * A task that changes the engine waits for the copy in flight.  The change must
 * not return while the engine still copies, and must return when the copy ends.
 */
static void mo_test_leave_while_copying(struct kunit *test, int (*leave)(void))
{
	struct task_struct *copier, *leaver;
	struct migrate_part *part;

	mo_require_no_engine(test);
	reinit_completion(&mo_copy_entered);
	reinit_completion(&mo_copy_may_leave);
	reinit_completion(&mo_leave_started);
	reinit_completion(&mo_leave_done);
	atomic_set(&mo_copy_left, 0);
	part = migrate_part_alloc();
	KUNIT_ASSERT_NOT_NULL(test, part);
	migrate_part_init(part);
	KUNIT_ASSERT_EQ(test, 0, migrate_offload_register(&mo_test_migrator));

	copier = mo_test_thread(test, mo_test_copier, &part->copy);
	wait_for_completion(&mo_copy_entered);
	leaver = mo_test_thread(test, mo_test_leaver, leave);
	wait_for_completion(&mo_leave_started);
	/* A change that does not wait would return within this time. */
	KUNIT_EXPECT_EQ(test, 0,
			wait_for_completion_timeout(&mo_leave_done,
						    msecs_to_jiffies(100)));

	complete(&mo_copy_may_leave);
	/*
	 * kthread_stop() before the first run would skip the thread function.
	 */
	wait_for_completion(&mo_leave_done);
	KUNIT_EXPECT_EQ(test, 0, kthread_stop(leaver));
	KUNIT_EXPECT_EQ(test, 0, kthread_stop(copier));
	put_task_struct(leaver);
	put_task_struct(copier);
	migrate_part_free(part);
}

static void mo_test_unregister_while_copying(struct kunit *test)
{
	mo_test_leave_while_copying(test, mo_test_unregister_it);
	KUNIT_EXPECT_EQ(test, -EINVAL,
			migrate_offload_unregister(&mo_test_migrator));
}

/* A reason's own engine replaces the general one. */
static void mo_test_engine_for_reason_while_copying(struct kunit *test)
{
	mo_test_leave_while_copying(test, mo_test_no_engine_for_reason);
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "none");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DAMON), "kunit-a");
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_EQ(test, 0,
			migrate_engine_select_for(MR_SYSCALL, "default"));
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_unregister(&mo_test_migrator));

	mo_test_leave_while_copying(test, mo_test_other_engine_for_reason);
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_SYSCALL), "cpu");
	KUNIT_EXPECT_STREQ(test, mo_engine_for(MR_DAMON), "kunit-a");
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_select("none"));
	KUNIT_EXPECT_EQ(test, 0, migrate_offload_unregister(&mo_test_migrator));
}

#define MO_STREAM_PAIRS 5

/* The engine is registered, but never active: nothing calls these functions. */
static int mo_stream_open(struct migrate_copy_stream *stream)
{
	return -EOPNOTSUPP;
}

static int mo_stream_submit(struct migrate_copy_stream *stream,
			    struct migrate_copy_batch *batch)
{
	return -EOPNOTSUPP;
}

static void mo_stream_reap(struct migrate_copy_stream *stream, u64 wait_ns)
{
}

static void mo_stream_close(struct migrate_copy_stream *stream)
{
}

static const struct migrate_engine_ops mo_stream_ops = {
	.name = "kunit-s",
	.open = mo_stream_open,
	.submit = mo_stream_submit,
	.reap = mo_stream_reap,
	.close = mo_stream_close,
};

static struct migrate_part *mo_stream_part(struct kunit *test)
{
	struct migrate_part *part = migrate_part_alloc();
	unsigned int i;

	KUNIT_ASSERT_NOT_NULL(test, part);
	migrate_part_init(part);
	part->copy.nr_pairs = MO_STREAM_PAIRS;
	for (i = 0; i < MO_STREAM_PAIRS; i++)
		part->copy.pairs[i] = (struct migrate_copy_pair) {
			.result = -EINPROGRESS,
		};
	return part;
}

static void mo_test_register_stream(struct kunit *test)
{
	struct migrate_engine_ops ops;

	ops = mo_stream_ops;
	ops.open = NULL;
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&ops));
	ops = mo_stream_ops;
	ops.submit = NULL;
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&ops));
	ops = mo_stream_ops;
	ops.reap = NULL;
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&ops));
	ops = mo_stream_ops;
	ops.close = NULL;
	KUNIT_EXPECT_EQ(test, -EINVAL, migrate_engine_register(&ops));

	KUNIT_EXPECT_EQ(test, 0, migrate_engine_register(&mo_stream_ops));
	KUNIT_EXPECT_EQ(test, 0, migrate_engine_unregister(&mo_stream_ops));
}

static void mo_test_copy_done(struct kunit *test)
{
	static const unsigned int order[] = { 3, 0, 4, 2, 1 };
	struct migrate_part *part = mo_stream_part(test);
	struct migrate_copy_batch *batch = &part->copy;
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(order); i++) {
		KUNIT_EXPECT_FALSE(test, batch->pairs[order[i]].done);
		migrate_copy_done(batch, order[i]);
		KUNIT_EXPECT_TRUE(test, batch->pairs[order[i]].done);
		KUNIT_EXPECT_EQ(test, batch->nr_done, i + 1);
	}
	for (i = 0; i < ARRAY_SIZE(order); i++)
		KUNIT_EXPECT_EQ(test, batch->pairs[i].nth_done, order[i]);
	migrate_part_free(part);
}

static struct kunit_case migrate_engine_test_cases[] = {
	KUNIT_CASE(mo_test_register),
	KUNIT_CASE(mo_test_register_engine),
	KUNIT_CASE(mo_test_hold_engine),
	KUNIT_CASE(mo_test_engine_for_reason),
	KUNIT_CASE(mo_test_suspend),
	KUNIT_CASE(mo_test_wants),
	KUNIT_CASE(mo_test_unregister_while_copying),
	KUNIT_CASE(mo_test_engine_for_reason_while_copying),
	KUNIT_CASE(mo_test_register_stream),
	KUNIT_CASE(mo_test_copy_done),
	{}
};

static struct kunit_suite migrate_engine_test_suite = {
	.name = "migrate_engine",
	.test_cases = migrate_engine_test_cases,
};

kunit_test_suite(migrate_engine_test_suite);
