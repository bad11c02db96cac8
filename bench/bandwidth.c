// SPDX-License-Identifier: GPL-2.0-only
/*
 * bandwidth: the rate at which all CPUs together read the memory of one node.
 */
#include <getopt.h>
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "common/bench.h"

#define MAX_THREADS 1024
#define CACHE_LINE 64

static const char usage[] =
	"usage: bandwidth [-n NODE] [-t MILLISECONDS] [-b BYTES]\n"
	"-b is what each CPU reads again and again: more than its caches hold\n";

static struct region memory;
static size_t bytes_per_thread;
static atomic_bool over;
static pthread_barrier_t ready;

struct reader {
	pthread_t thread;
	int cpu;
	size_t index;
	uint64_t bytes, sum;
};

static uint64_t read_once(const char *from, size_t bytes)
{
	uint64_t sum = 0;

	for (size_t off = 0; off < bytes; off += CACHE_LINE)
		sum += *(const volatile uint64_t *)(from + off);
	return sum;
}

static void *reader(void *arg)
{
	struct reader *r = arg;
	const char *from = memory.base + r->index * bytes_per_thread;

	pin_to_cpu(r->cpu);
	r->sum = read_once(from, bytes_per_thread);
	pthread_barrier_wait(&ready);
	while (!over) {
		/* Small pieces, so that the thread soon notices the end. */
		for (size_t off = 0; off < bytes_per_thread && !over;
		     off += PMD_BYTES) {
			r->sum += read_once(from + off, PMD_BYTES);
			r->bytes += PMD_BYTES;
		}
	}
	return NULL;
}

static uint64_t run(struct reader *readers, unsigned int nr, uint64_t ms)
{
	uint64_t start, bytes = 0;

	pthread_barrier_init(&ready, NULL, nr + 1);
	for (unsigned int i = 0; i < nr; i++)
		thread_start(&readers[i].thread, reader, &readers[i]);
	pthread_barrier_wait(&ready);
	start = bench_now_ns();
	bench_sleep_ns(ms * 1000000);
	over = true;
	for (unsigned int i = 0; i < nr; i++) {
		pthread_join(readers[i].thread, NULL);
		bytes += readers[i].bytes;
	}
	return (uint64_t)((double)bytes * 1e9 / (double)(bench_now_ns() - start));
}

int main(int argc, char **argv)
{
	static struct reader readers[MAX_THREADS];
	uint64_t node = 0, ms = 500, bytes = 32UL << 20, rate;
	unsigned int nr = 0;
	cpu_set_t cpus;
	int option;

	while ((option = getopt(argc, argv, "n:t:b:")) != -1) {
		bool ok = false;

		if (option == 'n')
			ok = parse_u64(optarg, &node) && node < 1024;
		else if (option == 't')
			ok = parse_u64(optarg, &ms) && ms > 0 && ms <= 60000;
		else if (option == 'b')
			ok = parse_bytes(optarg, &bytes);
		if (!ok)
			bench_die(BENCH_USAGE, "%s", usage);
	}
	if (bytes < PMD_BYTES || bytes % PMD_BYTES)
		bench_die(BENCH_USAGE, "%s", usage);
	bytes_per_thread = bytes;
	caller_cpu(&cpus, -1, (int)node, (int)node);
	for (int cpu = 0; cpu < CPU_SETSIZE && nr < MAX_THREADS; cpu++)
		if (CPU_ISSET(cpu, &cpus)) {
			readers[nr].cpu = cpu;
			readers[nr].index = nr;
			nr++;
		}
	node_check_free((int)node, bytes * nr);
	region_map(&memory, bytes * nr, page_bytes(), (int)node);
	memset(memory.base, 1, memory.bytes);
	rate = run(readers, nr, ms);
	json_begin("bandwidth");
	json_u64("node", node);
	json_u64("threads", nr);
	json_u64("bytes_per_s", rate);
	json_end();
	return BENCH_OK;
}
