// SPDX-License-Identifier: GPL-2.0-only
/*
 * How fast do routines copy folios, and what do they cost others?
 *
 * The program runs the routines of mm/migrate_offload/copy.c in user space, and
 * needs neither root nor a special kernel.  Copies of cold memory take its chunks
 * in random order.  Meanwhile a thread on another CPU follows pointers in a
 * memory as large as its L2 cache.  How much slower it gets is what the copy
 * takes from others.
 *
 * All times are CPU times of the threads: other programs that run on the same
 * CPUs meanwhile spoil them less.
 */
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "common/options.h"
#include "common/routines.h"

#define MAX_THREADS 64
#define MAX_SIZE (1UL << 30)
#define WARM_BYTES (64UL << 20)
/* The measurement at boot uses these: see mm/migrate_offload/copy_routine.c. */
#define BOOT_BYTES (512UL << 10)
#define LINE_BYTES 64
#define ALONE_NS 20000000
#define CHASED_NS 1000000	/* a shorter time tells nothing */

struct options {
	const char *sizes_text, *threads_text, *sabotage;
	size_t sizes[16];
	unsigned int threads[8];
	size_t nr_sizes, nr_threads;
	struct word_list routines;
	uint64_t total_bytes, rounds, chase_bytes;
};

static struct options opts = {
	.sizes_text = "4K,32K,256K,2M",
	.threads_text = "1",
	.total_bytes = 256UL << 20,
	.rounds = 5,
};

static const struct option_row rows[] = {
	{ "sizes", "LIST", "of chunks, 4K to 1G (default 4K,32K,256K,2M)",
	  set_text, &opts.sizes_text, 0, 0, NULL },
	{ "threads", "LIST", "that copy at once (default 1)", set_text,
	  &opts.threads_text, 0, 0, NULL },
	{ "routines", "LIST", "pages, nontemporal, direct, string, wide (default:\n"
	  "all that this CPU has)", set_words, &opts.routines, 0, 0,
	  routine_names },
	{ "total-bytes", "SIZE", "of the memory to copy (default 256M)",
	  set_bytes, &opts.total_bytes, PMD_BYTES, 1ULL << 44, NULL },
	{ "chase-bytes", "SIZE", "that the other thread uses (default: its L2)",
	  set_bytes, &opts.chase_bytes, LINE_BYTES, 1ULL << 34, NULL },
	ROW_ROUNDS(&opts.rounds),
	ROW_SABOTAGE(&opts.sabotage, ""),
	{ 0 },
};

static const struct program program = {
	"copy", "Copies memory in user space as migration does.",
	"--sizes 4K,2M --threads 1,8", rows
};

static char *source, *target;
static cpu_set_t cpus;
static int cpu_list[CPU_SETSIZE];
static unsigned int nr_cpus;

/* --- the thread that follows pointers ------------------------------------ */

static struct {
	pthread_t thread;
	void **start;
	int cpu;			/* -1: no CPU is left */
	_Atomic uint64_t steps;
	atomic_bool over;
} chaser;

static void *chase(void *arg)
{
	void **at = chaser.start;

	(void)arg;
	pin_to_cpu(chaser.cpu);
	while (!chaser.over) {
		for (int i = 0; i < 512; i++)
			at = *(void *volatile *)at;
		atomic_fetch_add_explicit(&chaser.steps, 512,
					  memory_order_relaxed);
	}
	return at;
}

/* Make a cycle of pointers through all lines in random order. */
static void chaser_start(int cpu)
{
	size_t nr = opts.chase_bytes / LINE_BYTES;
	size_t *order = malloc(nr * sizeof(*order));
	char *memory = aligned_alloc(PMD_BYTES, (opts.chase_bytes + PMD_BYTES - 1) &
						~(PMD_BYTES - 1));
	uint64_t random = 1;

	if (!order || !memory)
		bench_die(BENCH_LACKING, "no memory for --chase-bytes");
	madvise(memory, opts.chase_bytes, MADV_HUGEPAGE);
	for (size_t i = 0; i < nr; i++) {
		size_t other;

		random = random_step(random);
		other = random % (i + 1);
		order[i] = order[other];
		order[other] = i;
	}
	for (size_t i = 0; i < nr; i++)
		*(void **)(memory + order[i] * LINE_BYTES) =
			memory + order[(i + 1) % nr] * LINE_BYTES;
	free(order);
	chaser.start = (void **)memory;
	chaser.cpu = cpu;
	thread_start(&chaser.thread, chase, NULL);
}

static uint64_t cpu_time_ns(clockid_t clock)
{
	struct timespec t;

	clock_gettime(clock, &t);
	return (uint64_t)t.tv_sec * 1000000000 + (uint64_t)t.tv_nsec;
}

/* The thread's work since chase_begin(). */
struct chased {
	clockid_t clock;
	uint64_t steps, ns;
};

static void chase_begin(struct chased *c)
{
	if (pthread_getcpuclockid(chaser.thread, &c->clock))
		bench_die(BENCH_LACKING, "no clock of a thread");
	c->steps = chaser.steps;
	c->ns = cpu_time_ns(c->clock);
}

/* Returns steps per second of CPU time; 0: it ran too little, not known. */
static uint64_t chase_end(const struct chased *c)
{
	uint64_t ns = cpu_time_ns(c->clock) - c->ns;

	return ns < CHASED_NS ? 0 :
		(uint64_t)((double)(chaser.steps - c->steps) * 1e9 / (double)ns);
}

/* Returns the rate while nothing is copied. */
static uint64_t chase_alone(void)
{
	struct chased c;

	/* The last copy may have evicted the memory. */
	bench_sleep_ns(ALONE_NS / 4);
	chase_begin(&c);
	bench_sleep_ns(ALONE_NS);
	return chase_end(&c);
}

/* --- the copy ------------------------------------------------------------ */

enum memory {
	COLD,	/* in no cache */
	READ,	/* the same; the copy is read at once */
	WARM,	/* in the caches of the CPU that copies */
	BOOT,	/* as the kernel measures when it boots */
	NR_MEMORIES,
};

static const char *const memory_names[] = { "cold", "read", "warm", "boot" };

struct work {
	unsigned int routine;
	enum memory memory;
	size_t size;
	unsigned int nr_threads;
	const size_t *order;	/* of the chunks */
	size_t nr_chunks, times;
	atomic_uint nr_ready;
	atomic_bool go;
};

struct copier {
	pthread_t thread;
	struct work *work;
	unsigned int index;
	uint64_t ns;
};

static void read_lines(const char *start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		(void)*(const volatile char *)(start + at);
}

static void copy_share(struct copier *c)
{
	const struct work *w = c->work;
	unsigned int index = c->index;
	uint64_t start = cpu_time_ns(CLOCK_THREAD_CPUTIME_ID);
	size_t first = w->nr_chunks * index / w->nr_threads;
	size_t end = w->nr_chunks * (index + 1) / w->nr_threads;

	for (size_t n = 0; n < w->times; n++)
		for (size_t i = first; i < end; i++) {
			size_t at = w->order[i] * w->size;

			routines[w->routine].copy(target + at, source + at,
						  w->size);
			if (w->memory == READ)
				read_lines(target + at, w->size);
		}
	c->ns = cpu_time_ns(CLOCK_THREAD_CPUTIME_ID) - start;
}

static void *copier_main(void *arg)
{
	struct copier *c = arg;

	pin_to_cpu(cpu_list[c->index * nr_cpus / c->work->nr_threads]);
	c->work->nr_ready++;
	while (!c->work->go)
		sched_yield();
	copy_share(c);
	return NULL;
}

/* Returns the time of the thread that takes longest. */
static uint64_t copy_ns(struct work *w)
{
	struct copier copiers[MAX_THREADS];
	uint64_t longest;

	for (unsigned int i = 0; i < w->nr_threads; i++) {
		copiers[i] = (struct copier){ .work = w, .index = i };
		if (i)
			thread_start(&copiers[i].thread, copier_main,
				     &copiers[i]);
	}
	while (w->nr_ready != w->nr_threads - 1)
		sched_yield();
	w->go = true;
	copy_share(&copiers[0]);
	longest = copiers[0].ns;
	for (unsigned int i = 1; i < w->nr_threads; i++) {
		pthread_join(copiers[i].thread, NULL);
		if (copiers[i].ns > longest)
			longest = copiers[i].ns;
	}
	return longest;
}

/* Random order.  Of warm memory each thread has one chunk. */
static size_t *make_order(const struct work *w)
{
	size_t *order = malloc(w->nr_chunks * sizeof(*order));
	uint64_t random = 7;

	if (!order)
		bench_die(BENCH_LACKING, "no memory for the order of chunks");
	for (size_t i = 0; i < w->nr_chunks; i++) {
		size_t other;

		random = random_step(random);
		other = w->memory == WARM ? i : random % (i + 1);
		order[i] = order[other];
		order[other] = i;
	}
	return order;
}

/*
 * The warm-up round copies onto other bytes.  Later rounds change a word of
 * each page of the source.  So a page that is not copied shows.
 */
static void mark(size_t bytes, unsigned int round)
{
	static uint64_t stamp;

	if (!round)
		memset(target, 0xff, bytes);
	stamp++;
	for (size_t at = 0; at < bytes; at += page_bytes())
		memcpy(source + at + 8 * (stamp % 512), &stamp, sizeof(stamp));
}

static void check(const struct work *w, size_t bytes, unsigned int round)
{
	if (opts.sabotage)
		target[bytes / 2] ^= 1;
	if (!memcmp(source, target, bytes))
		return;
	bench_die(BENCH_FAILED, "%s, %zu bytes, round %u: the copy differs from its source",
		  routine_names[w->routine], w->size, round);
}

static void measure(struct work *w, unsigned int round)
{
	uint64_t elapsed, alone = 0, beside = 0;
	struct chased c;
	bool many = w->memory == COLD || w->memory == READ;
	bool warm = w->memory == WARM;
	bool chased = chaser.cpu >= 0 && w->nr_threads < nr_cpus &&
		      (w->memory == COLD || warm);
	size_t *order, bytes;

	w->nr_chunks = many ? opts.total_bytes / w->size : w->nr_threads;
	w->times = warm ? 1 + WARM_BYTES / w->size / w->nr_threads : 1;
	bytes = w->nr_chunks * w->size;
	w->order = order = make_order(w);
	mark(bytes, round);
	if (!warm) {
		caches_flush(source, bytes);
		caches_flush(target, bytes);
	}
	if (chased) {
		alone = chase_alone();
		chase_begin(&c);
	}
	elapsed = copy_ns(w);
	if (chased)
		beside = chase_end(&c);
	check(w, bytes, round);
	free(order);

	json_begin("copy");
	json_str("engine", routine_names[w->routine]);
	json_u64("threads", w->nr_threads);
	json_u64("folio_bytes", w->size);
	json_str("memory", memory_names[w->memory]);
	json_u64("round", round);
	json_u64("moved_bytes", bytes * w->times);
	json_u64("elapsed_ns", elapsed);
	json_u64_or_null("chase_alone_per_s", alone && beside, alone);
	json_u64_or_null("chase_beside_per_s", alone && beside, beside);
	json_bool("verified", true);
	json_end();
}

/* Routines take turns, so that a slow phase of the machine slows all. */
static void run_routines(const struct work *like, unsigned int round)
{
	for (size_t i = 0; i < opts.routines.nr; i++) {
		struct work w = *like;

		w.routine = opts.routines.at[(i + round) % opts.routines.nr];
		measure(&w, round);
	}
}

static void run_round(unsigned int round)
{
	struct work w = { .memory = BOOT, .size = BOOT_BYTES, .nr_threads = 1 };

	run_routines(&w, round);
	for (size_t s = 0; s < opts.nr_sizes; s++)
		for (size_t t = 0; t < opts.nr_threads; t++)
			for (w.memory = COLD; w.memory <= WARM; w.memory++) {
				w.size = opts.sizes[s];
				w.nr_threads = opts.threads[t];
				/* Each thread needs a chunk of its own. */
				if (opts.total_bytes / w.size >= w.nr_threads)
					run_routines(&w, round);
			}
}

/* --- the set-up ---------------------------------------------------------- */

static void read_options(void)
{
	char words[16][64];
	uint64_t value;

	opts.nr_sizes = parse_list(opts.sizes_text, words, ARRAY_SIZE(opts.sizes));
	for (size_t i = 0; i < opts.nr_sizes; i++) {
		if (!parse_bytes(words[i], &value) || value < page_bytes() ||
		    value > MAX_SIZE || value & (value - 1))
			option_invalid("sizes", words[i]);
		if (value > opts.total_bytes)
			bench_die(BENCH_USAGE, "--sizes: '%s' exceeds --total-bytes",
				  words[i]);
		opts.sizes[i] = value;
	}
	opts.nr_threads = parse_list(opts.threads_text, words,
				     ARRAY_SIZE(opts.threads));
	for (size_t i = 0; i < opts.nr_threads; i++) {
		if (!parse_u64(words[i], &value) || !value || value > MAX_THREADS)
			option_invalid("threads", words[i]);
		if (value > nr_cpus)
			bench_die(BENCH_LACKING,
				  "--threads: %s threads need as many CPUs, and this process has %u",
				  words[i], nr_cpus);
		opts.threads[i] = (unsigned int)value;
	}
	if (!opts.nr_sizes || !opts.nr_threads)
		bench_die(BENCH_USAGE, "--sizes and --threads need a value");
	if (!opts.chase_bytes) {
		long l2 = sysconf(_SC_LEVEL2_CACHE_SIZE);

		opts.chase_bytes = l2 > 0 ? (uint64_t)l2 : 1 << 20;
	}
}

static void choose_routines(void)
{
	if (!routines[NONTEMPORAL].exists())
		bench_die(BENCH_LACKING,
			  "the kernel has one routine for this architecture, so there is nothing to compare");
	if (!opts.routines.nr)
		for (unsigned int i = 0; i < NR_ROUTINES; i++)
			if (routines[i].exists())
				opts.routines.at[opts.routines.nr++] = i;
	for (size_t i = 0; i < opts.routines.nr; i++)
		if (!routines[opts.routines.at[i]].exists())
			bench_die(BENCH_LACKING, "--routines: this CPU has no '%s'",
				  routine_names[opts.routines.at[i]]);
}

static char *map_filled(uint64_t bytes)
{
	char *map = mmap(NULL, bytes + PMD_BYTES, PROT_READ | PROT_WRITE,
			 MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);

	if (map == MAP_FAILED)
		bench_die(BENCH_LACKING, "cannot map %llu bytes: use a smaller --total-bytes",
			  (unsigned long long)bytes);
	map = (char *)(((uintptr_t)map + PMD_BYTES - 1) & ~(PMD_BYTES - 1));
	/* The kernel's own mapping has large pages, too. */
	madvise(map, bytes, MADV_HUGEPAGE);
	for (uint64_t at = 0; at < bytes; at += page_bytes())
		pattern_fill(map + at, page_bytes(), 1, at / page_bytes());
	return map;
}

static void check_memory(void)
{
	uint64_t kib, needed = 2 * opts.total_bytes + (64 << 20);

	if (line_read_u64("/proc/meminfo", "MemAvailable:", &kib) &&
	    kib << 10 < needed)
		bench_die(BENCH_LACKING,
			  "this machine has %llu bytes available, and the copies need %llu: use a smaller --total-bytes",
			  (unsigned long long)kib << 10,
			  (unsigned long long)needed);
}

int main(int argc, char **argv)
{
	options_parse(&program, argc, argv);
	sched_getaffinity(0, sizeof(cpus), &cpus);
	for (int cpu = 0; cpu < CPU_SETSIZE; cpu++)
		if (CPU_ISSET(cpu, &cpus))
			cpu_list[nr_cpus++] = cpu;
	read_options();
	choose_routines();
	check_memory();
	json_begin("environment");
	json_str("bench", "copy");
	machine_report();
	json_u64("total_bytes", opts.total_bytes);
	json_u64("chase_bytes", opts.chase_bytes);
	json_end();

	pin_to_cpu(cpu_list[0]);
	source = map_filled(opts.total_bytes);
	target = map_filled(opts.total_bytes);
	chaser.cpu = -1;
	if (nr_cpus > 1)
		chaser_start(cpu_list[nr_cpus - 1]);
	for (unsigned int round = 0; round <= opts.rounds; round++)
		run_round(round);
	json_begin("done");
	json_end();
	return BENCH_OK;
}
