// SPDX-License-Identifier: GPL-2.0-only
/* What bench demotion and bench promotion share: options, nodes and counters. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "tiers.h"

#define MAX_ROUNDS 10000
#define QUERY_PAGES 4096UL
#define TIERING_DIR "/sys/devices/virtual/memory_tiering"

void tier_defaults(struct tier_options *o, int from, int to)
{
	*o = (struct tier_options){
		.from = from,
		.to = to,
		.total_bytes = 64UL << 20,
		.rounds = 5,
		.cpu = -1,
	};
	o->nr_sizes = sizes_parse("4K,2M", o->sizes, TIER_SIZES,
				  PMD_BYTES);
	o->nr_variants = variants_parse("stock", o->variants, TIER_VARIANTS);
}

/* What is in TIER_LONGOPTS, and getopt's own complaints. */
void tier_option(struct tier_options *o, int c, const char *value,
		 const char *usage)
{
	switch (c) {
	case 'f':
		o->from = (int)option_u64("from", value, 0, TIER_NODES - 1);
		break;
	case 't':
		o->to = (int)option_u64("to", value, 0, TIER_NODES - 1);
		break;
	case 's':
		o->nr_sizes = sizes_parse(value, o->sizes, TIER_SIZES,
					  PMD_BYTES);
		break;
	case 'b':
		if (!parse_bytes(value, &o->total_bytes))
			option_invalid("total-bytes", value);
		break;
	case 'r':
		o->rounds = (unsigned int)option_u64("rounds", value, 1,
						     MAX_ROUNDS);
		break;
	case 'v':
		o->nr_variants = variants_parse(value, o->variants,
						TIER_VARIANTS);
		break;
	case 'u':
		option_u64("max-unmapped-us", value, 0, UINT32_MAX);
		o->max_unmapped_us = value;
		break;
	case 'm':
		if (o->nr_modules == TIER_MODULES)
			bench_die(BENCH_USAGE, "too many --module");
		o->modules[o->nr_modules++] = value;
		break;
	case 'x':
		if (strcmp(value, "content"))
			option_invalid("sabotage", value);
		o->sabotage = value;
		break;
	case 'h':
		fputs(usage, stdout);
		exit(BENCH_OK);
	default:
		/* getopt has said which option it was. */
		exit(BENCH_USAGE);
	}
}

void tier_check(const struct tier_options *o)
{
	if (!o->total_bytes || o->total_bytes % PMD_BYTES ||
	    o->total_bytes > (1ULL << 44))
		bench_die(BENCH_USAGE,
			  "--total-bytes must be a multiple of 2M, so that every folio size divides it");
	if (o->from == o->to)
		bench_die(BENCH_USAGE,
			  "--from and --to are both node %d: nothing would move",
			  o->from);
	node_check_free(o->from, o->total_bytes);
	node_check_free(o->to, o->total_bytes);
}

/* Modules, engines, and the CPU where the caller is to run. */
void tier_start(struct tier_options *o)
{
	for (size_t i = 0; i < o->nr_modules; i++)
		module_load(o->modules[i]);
	for (size_t i = 0; i < o->nr_variants; i++)
		engine_check(&o->variants[i]);
	o->cpu = caller_cpu(&o->cpus, o->cpu, o->from, o->to);
}

/* After settings_restore_on_exit(). */
void tier_prepare(const struct tier_options *o)
{
	engine_prepare();
	if (o->max_unmapped_us)
		engine_limit(o->max_unmapped_us);
}

void report_or_null(const char *key, bool known, uint64_t value)
{
	if (known)
		json_u64(key, value);
	else
		json_null(key);
}

void report_found(const char *key, const char *path)
{
	char value[160];

	setting_value(path, value, sizeof(value));
	if (value[0])
		json_str(key, value);
	else
		json_null(key);
}

/* "4: 0; 56: 1": which nodes are of which tier, the fastest first. */
static void report_tiers(void)
{
	char text[256] = "";
	size_t len = 0;

	for (int tier = 0; tier < 1024 && len < sizeof(text) - 80; tier++) {
		char path[96], nodes[64];

		snprintf(path, sizeof(path),
			 TIERING_DIR "/memory_tier%d/nodelist", tier);
		if (!file_read(path, nodes, sizeof(nodes)) || !nodes[0])
			continue;
		len += (size_t)snprintf(text + len, sizeof(text) - len,
					"%s%d: %s", len ? "; " : "", tier, nodes);
	}
	if (len)
		json_str("memory_tiers", text);
	else
		json_null("memory_tiers");
}

/* Opens the line and leaves it open for what only one program knows. */
void tier_environment(const struct tier_options *o, const char *bench,
		      int caller_cpu)
{
	json_begin("environment");
	json_str("bench", bench);
	machine_report();
	json_u64("from_node", (uint64_t)o->from);
	json_u64("to_node", (uint64_t)o->to);
	json_u64("caller_cpu", (uint64_t)caller_cpu);
	json_u64("page_bytes", page_bytes());
	engine_report();
	if (o->max_unmapped_us)
		json_u64("max_unmapped_us", strtoull(o->max_unmapped_us, NULL, 0));
	machine_quiet();
	report_tiers();
	report_found("demotion_enabled_found",
		     "/sys/kernel/mm/numa/demotion_enabled");
	report_found("lru_gen_found", "/sys/kernel/mm/lru_gen/enabled");
}

/* Asks for the node of every page; one that is on neither node is a failure. */
void placement_read(const struct region *r, const struct tier_options *o,
		    struct placement *p)
{
	static void *pages[QUERY_PAGES];
	static int status[QUERY_PAGES];
	size_t page = page_bytes();

	*p = (struct placement){ 0 };
	for (size_t off = 0; off < r->bytes;) {
		size_t nr = 0;

		for (; nr < QUERY_PAGES && off + nr * page < r->bytes; nr++)
			pages[nr] = r->base + off + nr * page;
		if (syscall(SYS_move_pages, 0, nr, pages, NULL, status, 0))
			bench_die(BENCH_FAILED, "move_pages query: %s",
				  strerror(errno));
		for (size_t i = 0; i < nr; i++) {
			if (status[i] == o->from)
				p->from_bytes += page;
			else if (status[i] == o->to)
				p->to_bytes += page;
			else
				bench_die(BENCH_FAILED,
					  "the page at byte %zu is on node %d, neither %d nor %d",
					  off + i * page, status[i], o->from,
					  o->to);
		}
		off += nr * page;
	}
}

/* Ends the program unless every byte is right. */
void content_check(struct region *r, const struct tier_options *o,
		   uint64_t seed, const struct variant *v, unsigned int round)
{
	size_t offset;

	region_sabotage(r, o->sabotage, o->from);
	if (!region_verify(r, seed, &offset))
		bench_die(BENCH_FAILED,
			  "%s, %zu-byte folios, round %u: byte %zu has the wrong content",
			  v->engine, r->folio_bytes, round, offset);
}

static bool reason_read(const char *reason, const char *name, uint64_t *value)
{
	char path[160];

	snprintf(path, sizeof(path), OFFLOAD_DIR "/stats/reasons/%s/%s", reason,
		 name);
	return file_read_u64(path, value);
}

void offloaded_read(const char *reason, struct offloaded *o)
{
	o->known = reason_read(reason, "engine_bytes", &o->engine_bytes) &&
		   reason_read(reason, "cpu_bytes", &o->cpu_bytes) &&
		   reason_read(reason, "offered_folios", &o->offered_folios) &&
		   reason_read(reason, "batches", &o->batches);
}

void offloaded_report(const struct offloaded *before,
		      const struct offloaded *after)
{
	bool known = before->known && after->known;

	report_or_null("engine_bytes", known,
		       after->engine_bytes - before->engine_bytes);
	report_or_null("cpu_bytes", known,
		       after->cpu_bytes - before->cpu_bytes);
	report_or_null("offered_folios", known,
		       after->offered_folios - before->offered_folios);
	report_or_null("batches", known, after->batches - before->batches);
}

/* A line "name value" of a file like /proc/vmstat. */
bool vmstat_read(const char *path, const char *name, uint64_t *value)
{
	size_t len = strlen(name);
	FILE *f = fopen(path, "re");
	bool found = false;
	char line[160];

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, len) || line[len] != ' ')
			continue;
		line[strcspn(line, "\n")] = '\0';
		found = parse_u64(line + len + 1, value);
	}
	if (f)
		fclose(f);
	return found;
}

void variant_report(const struct variant *v)
{
	json_str("engine", v->engine);
	json_u64("threads", v->threads);
	json_u64("channels", v->channels);
}
