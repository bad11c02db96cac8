// SPDX-License-Identifier: GPL-2.0-only
/* The frame of all programs that measure in rounds. */
#include <stdlib.h>

#include "run.h"

void set_variant(const struct option_row *row, const char *text)
{
	if (!variant_parse(text, row->to))
		option_invalid(row->name, text);
}

void run_read_variants(struct run *r)
{
	char words[16][64];
	size_t nr = parse_list(r->variants_text, words, ARRAY_SIZE(words));

	if (!nr)
		option_invalid("variants", r->variants_text);
	for (size_t i = 0; i < nr; i++)
		if (!variant_parse(words[i], &r->variants[i]))
			option_invalid("variants", words[i]);
	r->nr_variants = nr;
}

void run_read_sizes(struct run *r)
{
	size_t most = r->hugetlb ? HUGETLB_MAX_BYTES : PMD_BYTES;
	char words[ARRAY_SIZE(r->sizes)][64];

	r->nr_sizes = parse_list(r->sizes_text, words, ARRAY_SIZE(words));
	if (!r->nr_sizes)
		option_invalid("sizes", r->sizes_text);
	for (size_t i = 0; i < r->nr_sizes; i++) {
		uint64_t bytes;

		if (!parse_bytes(words[i], &bytes) || bytes < page_bytes() ||
		    bytes > most || (bytes & (bytes - 1)))
			bench_die(BENCH_USAGE,
				  "--sizes: '%s' is not a power of two from 4K to %s",
				  words[i], r->hugetlb ? "1G" : "2M");
		r->sizes[i] = bytes;
	}
}

/* Read the lists, and check that each size divides the total. */
void run_check(struct run *r)
{
	size_t largest = PMD_BYTES;

	run_read_variants(r);
	run_read_sizes(r);
	for (size_t i = 0; i < r->nr_sizes; i++)
		if (r->sizes[i] > largest)
			largest = r->sizes[i];
	if (!r->total_bytes || r->total_bytes % largest ||
	    r->total_bytes > (1ULL << 44))
		bench_die(BENCH_USAGE,
			  "--total-bytes must be a multiple of %zuM, so that every folio size divides it",
			  largest >> 20);
}

/* Check for two nodes with this much room each. */
void run_check_nodes(const struct run *r, uint64_t bytes)
{
	if (r->from == r->to)
		bench_die(BENCH_USAGE,
			  "--from and --to are both node %d: nothing would move",
			  r->from);
	/* Free memory does not include the pools of hugetlb. */
	if (r->hugetlb)
		return;
	node_check_free(r->from, bytes);
	node_check_free(r->to, bytes);
}

/*
 * Load modules, prepare engines, choose the caller's CPU, and handle signals.
 */
void run_start(struct run *r)
{
	modules_load(&r->modules);
	for (size_t i = 0; i < r->nr_variants; i++)
		engine_check(&r->variants[i]);
	r->cpu = caller_cpu(&r->cpus, r->cpu, r->from, r->to);
	settings_restore_on_exit();
	settings_on_interrupt();
}

/* Do all steps in order, for programs without steps of their own. */
void run_begin(struct run *r, const struct program *p, int argc, char **argv)
{
	options_parse(p, argc, argv);
	run_check(r);
	run_check_nodes(r, r->total_bytes);
	run_start(r);
}

/*
 * Open the environment line.  The program may add fields.  Settings change from
 * here.
 */
void run_environment(const struct run *r, const char *bench)
{
	json_begin("environment");
	json_str("bench", bench);
	machine_report();
	json_u64("from_node", (uint64_t)r->from);
	json_u64("to_node", (uint64_t)r->to);
	json_u64("caller_cpu", (uint64_t)r->cpu);
	json_u64("page_bytes", page_bytes());
	engine_report();
	if (r->max_unmapped_us)
		json_u64("max_unmapped_us", strtoull(r->max_unmapped_us, NULL, 10));
	machine_quiet();
}

void run_prepare(struct run *r)
{
	if (r->nr_sizes)
		r->nr_sizes = sizes_drop_unsupported(r->sizes, r->nr_sizes,
						     r->hugetlb);
	engine_prepare();
	if (r->max_unmapped_us)
		engine_limit(r->max_unmapped_us);
}

/* The caller stays on @cpu.  All CPUs fill and verify. */
void run_on_cpu(const struct run *r, int cpu)
{
	pin_to_cpu(cpu);
	parallel_setup(&r->cpus, cpu);
}

/* A CPU for observers: the last that is not the caller's, or -1. */
int run_other_cpu(const struct run *r)
{
	int cpu = CPU_SETSIZE - 1;

	while (cpu >= 0 && (cpu == r->cpu || !CPU_ISSET(cpu, &r->cpus)))
		cpu--;
	return cpu;
}

/*
 * Rotate, so that each variant is first at times, and follows different ones.
 */
const struct variant *run_turn(const struct run *r, size_t i,
			       unsigned int round)
{
	return &r->variants[(i + round) % r->nr_variants];
}

void run_round(const struct run *r, unsigned int round,
	       void (*measure)(const struct run *r, const struct variant *v,
			       size_t folio_bytes, unsigned int round))
{
	for (size_t i = 0; i < r->nr_sizes; i++)
		for (size_t v = 0; v < r->nr_variants; v++)
			measure(r, run_turn(r, v, round), r->sizes[i], round);
}

void run_done(void)
{
	json_begin("done");
	json_end();
}

/* A new seed for each measurement, so that stale content is detected. */
uint64_t run_seed(void)
{
	static uint64_t seed;

	return seed += 2;
}

void variant_report(const struct variant *v)
{
	json_str("engine", v->engine);
	json_u64("threads", v->threads);
	json_u64("channels", v->channels);
}

/* Open a line about moved memory. */
void moved_begin(const char *type, const struct variant *v,
		 size_t folio_bytes, unsigned int round, uint64_t moved_bytes,
		 uint64_t elapsed_ns)
{
	json_begin(type);
	variant_report(v);
	json_u64("folio_bytes", folio_bytes);
	json_u64("round", round);
	json_u64("moved_bytes", moved_bytes);
	json_u64("elapsed_ns", elapsed_ns);
}

/* Close the line after the verification, which ends the program on failure. */
void verified_end(void)
{
	json_bool("verified", true);
	json_end();
}
