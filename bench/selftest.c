// SPDX-License-Identifier: GPL-2.0-only
/*
 * KTAP tests of the code that all benchmarks use.  A check that cannot fail
 * proves nothing, so each test includes a case that must fail.
 */
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "common/bench.h"
#include "common/compaction.h"
#include "common/footprint.h"
#include "common/hot_set.h"
#include "common/ktap.h"
#include "common/latency.h"
#include "common/run.h"
#include "common/tiers.h"
#include "common/tracing.h"

#define PAGE 4096

static void test_pattern(void)
{
	static unsigned char page[PAGE], other[PAGE];
	bool found_all = true;

	pattern_fill(page, PAGE, 7, 3);
	check(pattern_verify(page, PAGE, 7, 3) == PAGE,
	      "pattern: a filled page verifies");
	for (size_t bit = 0; bit < 8UL * PAGE; bit++) {
		page[bit / 8] ^= 1 << (bit % 8);
		found_all &= pattern_verify(page, PAGE, 7, 3) == bit / 8;
		page[bit / 8] ^= 1 << (bit % 8);
	}
	check(found_all, "pattern: every flipped bit is found where it is");
	check(pattern_verify(page, PAGE, 7, 4) != PAGE,
	      "pattern: another page's content is wrong");
	check(pattern_verify(page, PAGE, 8, 3) != PAGE,
	      "pattern: an earlier round's content is wrong");

	/* One cache line of the neighbour, at the same offset. */
	pattern_fill(other, PAGE, 7, 4);
	memcpy(page + 1024, other + 1024, 64);
	check(pattern_verify(page, PAGE, 7, 3) == 1024,
	      "pattern: one line of another page is wrong");
	memset(page, 0, PAGE);
	check(pattern_verify(page, PAGE, 0, 0) != PAGE,
	      "pattern: zeroes are wrong");
}

static void test_numbers(void)
{
	static const char *const bad_sizes[] = {
		"", " 4K", "-1", "+4", "4k B", "4KB", "K", "4T", "4Ki", "4 K",
		"0x10", "18446744073709551616", "17179869184G", "4KiBs",
	};
	uint64_t value = 0;
	bool refused = true;

	check(parse_bytes("4096", &value) && value == 4096, "size: bytes");
	check(parse_bytes("4K", &value) && value == 4096, "size: K");
	check(parse_bytes("2m", &value) && value == PMD_BYTES, "size: m");
	check(parse_bytes("1GiB", &value) && value == 1 << 30, "size: GiB");
	for (size_t i = 0; i < ARRAY_SIZE(bad_sizes); i++)
		refused &= !parse_bytes(bad_sizes[i], &value);
	check(refused, "size: everything else is refused");
	check(parse_u64("18446744073709551615", &value) && value == UINT64_MAX,
	      "number: largest");
	check(!parse_u64("1K", &value) && !parse_u64("", &value) &&
		      !parse_u64("1 ", &value),
	      "number: nothing may follow it");
}

static void test_lists(void)
{
	char words[3][64];

	check(parse_list("a,bb,c", words, 3) == 3 && !strcmp(words[1], "bb"),
	      "list: three words");
	check(!parse_list("a,b,c,d", words, 3), "list: too many words");
	check(!parse_list("a,,b", words, 3) && !parse_list("", words, 3) &&
		      !parse_list("a,", words, 3),
	      "list: empty words are refused");
}

static void test_variants(void)
{
	struct variant v;

	check(variant_parse("stock", &v) && v.threads == 1, "variant: stock");
	check(variant_parse("mtcopy", &v) && v.threads == 0,
	      "variant: mtcopy chooses its threads");
	check(variant_parse("mtcopy:threads=2", &v) && v.threads == 2 &&
		      !strcmp(v.engine, "mtcopy"),
	      "variant: mtcopy with two threads");
	check(variant_parse("dcbm:channels=16", &v) && v.channels == 16 &&
		      v.threads == 1,
	      "variant: dcbm with sixteen channels");
	check(!variant_parse("mtcopy:threads=", &v) &&
		      !variant_parse("dcbm:threads=2", &v) &&
		      !variant_parse("dcbm:channels=65", &v) &&
		      !variant_parse("mtcopy:threads=x", &v) &&
		      !variant_parse("mtcopy:channels=2", &v) &&
		      !variant_parse("cpu:threads=2", &v) &&
		      !variant_parse("", &v) && !variant_parse(":", &v),
	      "variant: the rest is refused");
}

static void test_cases(void)
{
	static const char *const bad[] = {
		"", "engine", "engine=", "folio=3K", "folio=4M", "total=0",
		"folio=2M,total=1M", "cap=0", "cap=262145", "windows=17",
		"streaming=yes", "limit=-1", "limit=soon", "touch=poke",
		"slow=50", "slow=50:10", "slow=0:10,mbps=4", "warp=9",
		"mbps=", "engine=stock,",
	};
	struct test_case t;
	bool refused = true;

	check(case_parse("engine=dcbm:channels=16,folio=4K,total=4K,cap=8192",
			 &t) && t.variant.channels == 16 &&
		      t.folio_bytes == PAGE && t.total_bytes == PAGE &&
		      t.cap_pages == 8192 && t.max_windows == 2 &&
		      t.streaming && t.limit_us == LIMIT_DEFAULT &&
		      !t.has_rate,
	      "case: what is not said has its default");
	check(case_parse("windows=1,streaming=false,limit=0,mbps=8,slow=50:10,touch=write",
			 &t) && t.max_windows == 1 && !t.streaming &&
		      !t.limit_us && t.has_rate && t.mbps == 8 &&
		      t.slow_percent == 50 && t.slow_factor == 10 &&
		      t.touch == TOUCH_WRITE,
	      "case: the posted design, slowed down");
	for (size_t i = 0; i < ARRAY_SIZE(bad); i++)
		refused &= !case_parse(bad[i], &t);
	check(refused, "case: everything else is refused");
}

static void test_histograms(void)
{
	static struct histogram h, before;
	bool tight = true;

	check(histogram_parse("0 3\n1024 5\n1152 1\n", &h) && h.nr == 3 &&
		      h.lower[2] == 1152 && h.count[1] == 5,
	      "histogram: lines are read");
	check(histogram_parse("", &before) && !before.nr,
	      "histogram: an empty one is one");
	check(!histogram_parse("1 2 3\n", &before) &&
		      !histogram_parse("12\n", &before) &&
		      !histogram_parse("-1 2\n", &before),
	      "histogram: the rest is refused");
	histogram_parse("0 3\n1024 2\n", &before);
	histogram_subtract(&h, &before);
	check(h.nr == 2 && h.lower[0] == 1024 && h.count[0] == 3 &&
		      h.lower[1] == 1152 && h.count[1] == 1,
	      "histogram: what was there before is taken out");
	h.nr = 0;
	histogram_add(&h, 5000);
	histogram_add(&h, 7);
	histogram_add(&h, 5001);
	check(h.nr == 2 && h.lower[0] == 7 && h.count[1] == 2,
	      "histogram: times are counted in order");
	for (uint64_t ns = 1; ns < 1ULL << 40; ns += ns / 5 + 1) {
		uint64_t lower = histogram_lower(ns);

		tight &= lower <= ns && ns - lower <= ns / 8;
	}
	check(tight, "histogram: buckets are an eighth of an octave");
}

/* Safe while the thread runs: its counts and its slowest touch only grow. */
static bool touches_timed(const struct toucher *t)
{
	return __atomic_load_n(&t->touches, __ATOMIC_RELAXED) > 0 &&
	       t->quiet_ns > 0 &&
	       __atomic_load_n(&t->slowest_ns, __ATOMIC_RELAXED) >=
		       t->quiet_ns / 2;
}

static void test_touching(void)
{
	struct toucher t = { .mode = TOUCH_WRITE };
	size_t offset = 0;
	struct region r;
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	while (!CPU_ISSET(t.cpu, &cpus))
		t.cpu++;
	region_map(&r, PMD_BYTES, page_bytes(), 0);
	region_fill(&r, 3);
	t.region = &r;
	toucher_start(&t);
	toucher_moving(&t);
	/* Other processes may use the thread's CPU for any time. */
	for (int i = 0; i < 5000 && !touches_timed(&t); i++)
		usleep(1000);
	check(!region_verify(&r, 3, &offset), "touch: memory is written to");
	toucher_stop(&t);
	check(region_verify(&r, 3, &offset),
	      "touch: the writes are taken back");
	check(touches_timed(&t), "touch: each one was timed");
	region_unmap(&r);
}

static void test_settings(void)
{
	char path[] = "/tmp/pageferry-selftest-XXXXXX", value[64];
	int fd = mkstemp(path);

	if (fd < 0) {
		check(false, "setting: temporary file");
		return;
	}
	close(fd);
	file_write(path, "always [madvise] never\n");
	setting_value(path, value, sizeof(value));
	check(!strcmp(value, "madvise"), "setting: the bracketed word counts");
	unlink(path);
	fd = open(path, O_WRONLY | O_CREAT | O_EXCL, 0600);
	close(fd);
	file_write(path, "12\n");
	check(setting_pin(path, "34") && setting_pin(path, "56"),
	      "setting: pinned twice");
	setting_value(path, value, sizeof(value));
	check(!strcmp(value, "56"), "setting: the last value is in force");
	settings_restore();
	setting_value(path, value, sizeof(value));
	check(!strcmp(value, "12"), "setting: the first value comes back");
	check(!tracing_knows_pids("/proc/self/ns/mnt") &&
		      tracing_knows_pids("/nonexistent/file"),
	      "tracing: only the first namespace has numbers for filters");
	check(!setting_pin("/nonexistent/file", "1"),
	      "setting: a missing file is reported");
	unlink(path);
}

static void *take_signal(void *arg)
{
	sigset_t mask;
	bool *any = arg;

	pthread_sigmask(SIG_SETMASK, NULL, &mask);
	*any = !sigismember(&mask, SIGTERM) || !sigismember(&mask, SIGPIPE);
	return NULL;
}

static void test_threads(void)
{
	bool thread_does = true, main_does;
	pthread_t thread;

	thread_start(&thread, take_signal, &thread_does);
	check(!pthread_join(thread, NULL) && !thread_does,
	      "thread: no signal ends up in it");
	take_signal(&main_does);
	check(main_does, "thread: signals still end up in the main thread");
}

/* One node suffices: the limit copies any memory. */
static void test_limit(void)
{
	bool both_copy = true, all_found = true;

	struct region src, dst;
	size_t offset = 0;
	cpu_set_t cpus;

	sched_getaffinity(0, sizeof(cpus), &cpus);
	region_map(&src, 3 * PMD_BYTES, page_bytes(), 0);
	region_map(&dst, 3 * PMD_BYTES, page_bytes(), 0);
	region_fill(&src, 5);
	region_fill(&dst, 6);
	check(limit_copy_ns(&src, &dst, 3, &cpus, 0) > 0,
	      "limit: three threads take some time");
	both_copy &= region_verify(&dst, 5, &offset);
	/* The chosen copy function must also copy everything. */
	limit_choose_copy();
	region_fill(&dst, 6);
	limit_copy_ns(&src, &dst, 1, &cpus, 0);
	both_copy &= region_verify(&dst, 5, &offset);
	check(both_copy, "limit: everything was copied");
	dst.base[dst.bytes - 1] ^= 1;
	check(!region_verify(&dst, 5, &offset) && offset == dst.bytes - 1,
	      "region: the last byte is looked at");
	/* The last byte of each worker's share, and of the remainder. */
	parallel_setup(&cpus, -1);
	region_fill(&src, 9);
	for (size_t end = PMD_BYTES; end <= src.bytes; end += PMD_BYTES) {
		src.base[end - 1] ^= 0x80;
		all_found &= !region_verify(&src, 9, &offset) &&
			     offset == end - 1;
		src.base[end - 1] ^= 0x80;
	}
	check(all_found && region_verify(&src, 9, &offset),
	      "region: every worker looks at all of its share");
	region_unmap(&src);
	region_unmap(&dst);
}

static void test_stalls(void)
{
	static const char text[] =
		"some avg10=0.00 avg60=1.50 avg300=0.10 total=1234\n"
		"full avg10=0.00 avg60=0.00 avg300=0.00 total=56";
	uint64_t us;

	check(stall_parse(text, "some ", &us) && us == 1234,
	      "stall: some tasks");
	check(stall_parse(text, "full ", &us) && us == 56, "stall: all tasks");
	check(!stall_parse("full total=1", "some ", &us) &&
	      !stall_parse("some total=", "some ", &us) &&
	      !stall_parse("", "some ", &us), "stall: not there");
}

static void test_last_moves(void)
{
	static const char line[] =
		"           <...>-77      [001] .....    12.345678: "
		"mm_migrate_pages: nr_succeeded=512 nr_failed=0 "
		"mode=MIGRATE_ASYNC reason=demotion\n";
	static const char other[] =
		"  a: b-77 [001] ..... 12.345678: mm_migrate_pages_start: "
		"mode=MIGRATE_ASYNC reason=demotion\n";
	uint64_t ns;

	check(last_move_parse(line, "demotion", &ns) && ns == 12345678000ULL,
	      "last move: when it was");
	check(!last_move_parse(line, "compaction", &ns) &&
		      !last_move_parse(line, "demo", &ns),
	      "last move: not for another reason");
	check(!last_move_parse(other, "demotion", &ns) &&
		      !last_move_parse("# tracer: nop\n", "demotion", &ns) &&
		      !last_move_parse("", "demotion", &ns),
	      "last move: not of another event");
	check(!last_move_parse("x-1 [0] . 12: mm_migrate_pages: reason=demotion",
			       "demotion", &ns),
	      "last move: not by a clock that counts something else");
}

static void test_cpu_time(void)
{
	static const char text[] =
		"cpu  9 9 9 9 9 9 9 9 0 0\n"
		"cpu1 9 9 9 9 9 9 9 9 0 0\n"
		"cpu11 1 2 4 8 16 32 64 128 0 0\n"
		"intr 1 2 3\n";
	struct cpu_ticks ticks;

	check(cpu_ticks_parse(text, 11, &ticks) && ticks.user == 3 &&
		      ticks.system == 4 + 32 + 64 && ticks.idle == 8 + 16 &&
		      ticks.steal == 128,
	      "cpu time: of the CPU that was asked for");
	check(!cpu_ticks_parse(text, 2, &ticks) &&
		      !cpu_ticks_parse("", 0, &ticks) &&
		      !cpu_ticks_parse("cpu0 1 2 3\n", 0, &ticks),
	      "cpu time: not there");
	check(cpu_ticks_ns(1, 3) == 2 * cpu_ticks_ns(0, 1) &&
		      !cpu_ticks_ns(3, 1),
	      "cpu time: never less than nothing");
}

static void test_fragments(void)
{
	struct fragments f;
	size_t offset, nr_kept = 0, spoilt;

	/* Only root may see which pages are free. */
	if (!fragments_make(&f, 4 * PMD_BYTES, 0, 3)) {
		fragments_free(&f);
		return;
	}
	for (size_t i = 0; i < f.region.bytes / page_bytes(); i++) {
		nr_kept += f.kept[i];
		if (!f.kept[i] && f.region.base[i * page_bytes()])
			nr_kept += f.region.bytes;
	}
	check(nr_kept && nr_kept < f.region.bytes / page_bytes(),
	      "fragments: some pages are free");
	check(region_verify(&f.region, 3, &offset), "fragments: content is found");
	check(!region_verify(&f.region, 5, &offset),
	      "fragments: an earlier round's content is wrong");
	spoilt = fragments_sabotage(&f);
	check(!region_verify(&f.region, 3, &offset) && offset == spoilt,
	      "fragments: a byte that was spoilt is found where it is");
	fragments_free(&f);
}

/* Each load uses at most half of the pages, the second half first. */
static void test_loads(void)
{
	static const struct window wanted[NR_LOADS][MAX_PHASES] = {
		[LOAD_STATIC] = { { 400, 400 } },
		[LOAD_MOVING] = { { 400, 400 }, { 0, 400 } },
		[LOAD_GROWING] = { { 400, 100 }, { 400, 200 }, { 400, 300 },
				   { 400, 400 } },
	};
	bool right = true;

	for (enum load load = 0; load < NR_LOADS; load++) {
		for (unsigned int p = 0; p < load_phases(load); p++) {
			struct window w = load_window(load, p, 800);

			right &= w.first == wanted[load][p].first &&
				 w.nr == wanted[load][p].nr;
		}
		right &= load_phases(load) == MAX_PHASES ||
			 !wanted[load][load_phases(load)].nr;
	}
	check(right, "loads: the pages of each phase");
}

static void test_followed(void)
{
	const uint64_t s = 1000000000;
	struct followed f = { .node = 1 };
	struct turns t = { 0 };

	followed_look(&f, 1, 0, s, &t);
	followed_look(&f, -2, 0, s, &t);
	check(!t.up && !t.down, "followed: a page that stays, or is on its way");
	followed_look(&f, 0, 0, 2 * s, &t);
	followed_look(&f, 1, 0, 62 * s, &t);
	check(t.up == 1 && t.down == 1 && t.ping_pong == 1,
	      "followed: back within a minute");
	followed_look(&f, 0, 0, 100 * s, &t);
	followed_look(&f, 1, 0, 161 * s, &t);
	check(t.up == 2 && t.down == 2 && t.ping_pong == 1,
	      "followed: back after more than a minute");
	f.node = 0;
	followed_look(&f, 1, 0, 162 * s, &t);
	check(t.down == 3 && t.ping_pong == 1,
	      "followed: demoted without a promotion");
}

static void test_hot_set(void)
{
	static struct region r;
	static struct hot_set h = { .region = &r, .load = LOAD_MOVING };
	struct turns t = { 0 };
	struct followed f;
	size_t offset, at;

	region_prepare(&r, 2 * PMD_BYTES, page_bytes(), 0);
	region_fill(&r, 9);
	h.cpu = sched_getcpu();
	hot_set_start(&h);
	bench_sleep_ns(50000000);
	at = h.recent[0];
	check(at >= PMD_BYTES / page_bytes() &&
		      at < 2 * PMD_BYTES / page_bytes(),
	      "hot set: accesses go to the window");
	check(hot_set_permille(&h, 0) == 1000 && !hot_set_permille(&h, 1),
	      "hot set: the node of the accesses");
	hot_set_stop(&h);
	check(!region_verify(&r, 9, &offset) && offset >= PMD_BYTES,
	      "hot set: only the window was written");
	f = (struct followed){ .page = r.base, .node = 1 };
	followed_look_all(&f, 1, 0, &t);
	check(t.up == 1 && f.node == 0, "followed: the kernel knows the node");
	check(hot_set_undo(&h, 9) && region_verify(&r, 9, &offset),
	      "hot set: all writes are undone");
	h.accesses = 1;
	check(!hot_set_undo(&h, 9), "hot set: a lost write is noticed");
	region_unmap(&r);
}

static void test_footprint(void)
{
	struct footprint now, other;

	footprint_read(&now);
	check(now.used_bytes && now.used_bytes < 1UL << 50,
	      "footprint: memory in use is total without free");
	check(now.slab_bytes && now.slab_bytes < now.used_bytes &&
		      now.percpu_bytes,
	      "footprint: the kernel's part is known");
	other = now;
	other.used_bytes--;
	other.slab_bytes++;
	footprint_least(&now, &other);
	check(now.used_bytes == other.used_bytes &&
		      now.slab_bytes == other.slab_bytes - 1,
	      "footprint: each figure is the least of both");
}

int main(void)
{
	ktap_start();
	test_pattern();
	test_numbers();
	test_lists();
	test_variants();
	test_cases();
	test_histograms();
	test_touching();
	test_settings();
	test_threads();
	test_limit();
	test_stalls();
	test_last_moves();
	test_cpu_time();
	test_fragments();
	test_loads();
	test_followed();
	test_hot_set();
	test_footprint();
	return ktap_end();
}
