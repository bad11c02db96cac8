/* SPDX-License-Identifier: GPL-2.0-only */
/* run.c: sizes, variants and rounds of a program; variants take turns. */
#ifndef PF_BENCH_RUN_H
#define PF_BENCH_RUN_H

#include "engine.h"
#include "options.h"

struct run {
	int from, to;
	const char *sizes_text, *variants_text;
	size_t sizes[16];
	size_t nr_sizes;
	bool hugetlb;
	uint64_t total_bytes;
	uint64_t rounds;
	struct variant variants[32];
	size_t nr_variants;
	const char *sabotage;
	const char *max_unmapped_us;	/* NULL: no module */
	struct modules modules;
	cpu_set_t cpus;
	int cpu;
};

#define RUN_DEFAULTS(from_node, to_node, variants_)			       \
	.from = from_node, .to = to_node, .variants_text = variants_,	       \
	.rounds = 5, .cpu = -1

#define ROWS_NODES(r, from_node, to_node)				       \
	{ "from", "NODE", "where memory is (default " #from_node ")", set_int, \
	  &(r)->from, 0, 1023, NULL },					       \
	{ "to", "NODE", "where it goes (default " #to_node ")", set_int,       \
	  &(r)->to, 0, 1023, NULL }
#define ROW_SIZES(r, sizes)						       \
	{ "sizes", "LIST", "folio sizes, " sizes, set_text, &(r)->sizes_text,  \
	  0, 0, NULL }
#define ROW_TOTAL(r, about)						       \
	{ "total-bytes", "SIZE", about, set_bytes, &(r)->total_bytes, 0,       \
	  UINT64_MAX, NULL }
#define ROW_VARIANTS(r)							       \
	{ "variants", "LIST",						       \
	  "stock, off, cpu, mtcopy[:threads=N], dcbm[:channels=N]\n"	       \
	  "(default stock)", set_text, &(r)->variants_text, 0, 0, NULL }
#define ROW_ENGINE(variant)						       \
	{ "engine", "NAME",						       \
	  "off, stock, cpu, mtcopy, dcbm[:channels=N], which\n"	       \
	  "decides itself what it takes (default off)", set_variant, variant,  \
	  0, 0, NULL }
#define ROW_REACH(r)							       \
	{ "max-unmapped-us", "N", "how long a folio may be out of reach, 0: "  \
	  "without\nbounds (default: as it is)", set_text,		       \
	  &(r)->max_unmapped_us, 0, UINT32_MAX, NULL }

/* limit.c: a plain copy in user space between the same nodes */
const char *limit_choose_copy(void);
uint64_t limit_copy_ns(const struct region *src, struct region *dst,
		       unsigned int nr_threads, const cpu_set_t *cpus,
		       int first_cpu);

/* run.c */
void set_variant(const struct option_row *row, const char *text);
void run_read_variants(struct run *r);
void run_read_sizes(struct run *r);
void run_check(struct run *r);
void run_check_nodes(const struct run *r, uint64_t bytes);
void run_start(struct run *r);
void run_begin(struct run *r, const struct program *p, int argc, char **argv);
void run_environment(const struct run *r, const char *bench);
void run_prepare(struct run *r);
void run_on_cpu(const struct run *r, int cpu);
int run_other_cpu(const struct run *r);
const struct variant *run_turn(const struct run *r, size_t i,
			       unsigned int round);
/* Run each variant with each size.  @measure verifies, and prints a line. */
void run_round(const struct run *r, unsigned int round,
	       void (*measure)(const struct run *r, const struct variant *v,
			       size_t folio_bytes, unsigned int round));
void run_done(void);
uint64_t run_seed(void);
void variant_report(const struct variant *v);
void moved_begin(const char *type, const struct variant *v,
		 size_t folio_bytes, unsigned int round, uint64_t moved_bytes,
		 uint64_t elapsed_ns);
void verified_end(void);

#endif /* PF_BENCH_RUN_H */
