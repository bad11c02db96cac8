// SPDX-License-Identifier: GPL-2.0-only
/* Checks that a fault campaign leaks neither memory nor DMA mappings. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "mo_campaign.h"
#include "mo_util.h"

static unsigned long field_kb(const char *text, const char *name)
{
	const char *found = strstr(text, name);

	return found ? strtoul(found + strlen(name), NULL, 10) : 0;
}

#define PATH_PCP "/proc/sys/vm/percpu_pagelist_high_fraction"

/* Returns the memory that both nodes' meminfo files assign to no use. */
static long unaccounted_kb(void)
{
	static const char *const used[] = {
		" MemFree:", " FilePages:", " AnonPages:", " Slab:",
		" KernelStack:", " PageTables:", " SecPageTables:",
	};
	char path[64], text[4096];
	long kb = 0;
	int i, n;

	mo_write("/proc/sys/vm/drop_caches", "3");
	mo_try_write("/proc/sys/vm/compact_memory", "1");
	for (n = 0; n < 2; n++) {
		snprintf(path, sizeof(path),
			 "/sys/devices/system/node/node%d/meminfo", mo_nodes[n]);
		mo_read(path, text, sizeof(text));
		kb += field_kb(text, " MemTotal:");
		for (i = 0; i < (int)ARRAY_SIZE(used); i++)
			kb -= field_kb(text, used[i]);
	}
	return kb;
}

/* DMA mappings that exist, as CONFIG_DMA_API_DEBUG counts them. */
static long mappings(void)
{
	static const char dir[] = "/sys/kernel/debug/dma-api/";
	char total[64], unused[64];

	snprintf(total, sizeof(total), "%snr_total_entries", dir);
	snprintf(unused, sizeof(unused), "%snum_free_entries", dir);
	if (!mo_exists(total))
		return 0;
	return mo_read_number(total) - mo_read_number(unused);
}

long leaks_dma_errors(void)
{
	static const char path[] = "/sys/kernel/debug/dma-api/error_count";

	return mo_exists(path) ? mo_read_number(path) : 0;
}

unsigned long leaks_held(void)
{
	return mo_read_number(PATH_OFFLOAD "held_folios");
}

/* Without this, CPUs keep an eighth of the memory on their lists. */
void leaks_prepare(void)
{
	mo_try_write(PATH_PCP, "100000");
}

void leaks_done(void)
{
	mo_try_write(PATH_PCP, "0");
}

void leaks_before(struct leaks_baseline *before)
{
	before->kb = unaccounted_kb();
	before->mappings = mappings();
	before->errors = leaks_dma_errors();
}

/* CPUs still keep some pages, and KASAN keeps stacks. */
#define LEAK_KB 8192

bool leaks_check(const struct leaks_baseline *before)
{
	long kb = unaccounted_kb() - before->kb;
	long maps = mappings() - before->mappings;
	long errors = leaks_dma_errors() - before->errors;
	bool ok = kb < LEAK_KB && !maps && !errors && !leaks_held();

	printf("{\"type\": \"leaks\", \"kib\": %ld, \"mappings\": %ld, ", kb,
	       maps);
	printf("\"dma_api_errors\": %ld, \"held\": %lu, \"ok\": %s}\n", errors,
	       leaks_held(), ok ? "true" : "false");
	fflush(stdout);
	return ok;
}
