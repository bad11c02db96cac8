/* SPDX-License-Identifier: GPL-2.0-only */
/* What bench demotion and bench promotion share. */
#ifndef PF_BENCH_TIERS_H
#define PF_BENCH_TIERS_H

#include <getopt.h>

#include "engine.h"

#define TIER_SIZES 16
#define TIER_VARIANTS 16
#define TIER_MODULES 8
#define TIER_NODES 64

struct tier_options {
	int from, to;
	size_t sizes[TIER_SIZES];
	size_t nr_sizes;
	uint64_t total_bytes;
	unsigned int rounds;
	struct variant variants[TIER_VARIANTS];
	size_t nr_variants;
	const char *sabotage;
	const char *max_unmapped_us;	/* or NULL: as it is */
	const char *modules[TIER_MODULES];
	size_t nr_modules;
	cpu_set_t cpus;
	int cpu;
};

#define TIER_LONGOPTS						\
	{ "from", required_argument, NULL, 'f' },		\
	{ "to", required_argument, NULL, 't' },			\
	{ "sizes", required_argument, NULL, 's' },		\
	{ "total-bytes", required_argument, NULL, 'b' },	\
	{ "rounds", required_argument, NULL, 'r' },		\
	{ "variants", required_argument, NULL, 'v' },		\
	{ "max-unmapped-us", required_argument, NULL, 'u' },	\
	{ "module", required_argument, NULL, 'm' },		\
	{ "sabotage", required_argument, NULL, 'x' },		\
	{ "help", no_argument, NULL, 'h' }

#define TIER_USAGE							    \
	"  --from NODE, --to NODE  nodes\n"				    \
	"  --sizes LIST            folio sizes, 4K to 2M (default 4K,2M)\n" \
	"  --total-bytes SIZE      in each measurement, a multiple of 2M\n" \
	"                          (default 64M)\n"			    \
	"  --rounds N              that count; one more comes first (default 5)\n" \
	"  --variants LIST         stock, off, cpu, mtcopy[:threads=N], dcbm[:channels=N]\n" \
	"                          (default stock)\n"			    \
	"  --max-unmapped-us N     how long a folio may be out of reach, 0: without\n" \
	"                          bounds (default: as it is)\n"	    \
	"  --module FILE           load this kernel module first; may be repeated;\n" \
	"                          'FILE.ko NAME=VALUE' with parameters\n"  \
	"  --sabotage content      spoil one byte before the check, which must\n" \
	"                          then fail (for tests)\n"		    \
	"  --help\n"

/* tiers.c */
void tier_defaults(struct tier_options *o, int from, int to);
void tier_option(struct tier_options *o, int c, const char *value,
		 const char *usage);
void tier_check(const struct tier_options *o);
void tier_start(struct tier_options *o);
void tier_prepare(const struct tier_options *o);
void tier_environment(const struct tier_options *o, const char *bench,
		      int caller_cpu);

/* Where the pages of a region are. */
struct placement {
	uint64_t from_bytes, to_bytes;
};

void placement_read(const struct region *r, const struct tier_options *o,
		    struct placement *p);
void content_check(struct region *r, const struct tier_options *o,
		   uint64_t seed, const struct variant *v, unsigned int round);

/* What was copied for one reason, by whom; unknown on a kernel without it. */
struct offloaded {
	bool known;
	uint64_t engine_bytes, cpu_bytes, offered_folios, batches;
};

void offloaded_read(const char *reason, struct offloaded *o);
void offloaded_report(const struct offloaded *before,
		      const struct offloaded *after);
bool vmstat_read(const char *path, const char *name, uint64_t *value);
void variant_report(const struct variant *v);
void report_or_null(const char *key, bool known, uint64_t value);
void report_found(const char *key, const char *path);

/* last_move.c */
bool last_move_open(void);
void last_move_arm(pid_t pid, bool huge);
bool last_move_read(const char *reason, uint64_t *at_ns);
bool last_move_parse(const char *line, const char *reason, uint64_t *at_ns);

/* cgroup.c */
struct stall {
	uint64_t some_us, full_us;
};

void cgroup_open(void);
void cgroup_close(void);
bool cgroup_write(const char *name, const char *value);
bool cgroup_read_u64(const char *name, uint64_t *value);
bool cgroup_stall(struct stall *s);
bool stall_parse(const char *text, const char *kind, uint64_t *us);

#endif /* PF_BENCH_TIERS_H */
