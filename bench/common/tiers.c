// SPDX-License-Identifier: GPL-2.0-only
/* Nodes, content and counters of memory that the kernel moves by itself. */
#include <stdio.h>

#include "tiers.h"

#define TIERING_DIR "/sys/devices/virtual/memory_tiering"

/* Report the nodes of each tier, the fastest first: "4: 0; 56: 1". */
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

/* Call this inside the open JSON object. */
void tiers_report(void)
{
	report_tiers();
	setting_report("demotion_enabled_found",
		       "/sys/kernel/mm/numa/demotion_enabled");
	setting_report("lru_gen_found", "/sys/kernel/mm/lru_gen/enabled");
}

/* Query the node of each page.  A page on a third node is a failure. */
void placement_read(const struct region *r, const struct run *o,
		    struct placement *p)
{
	static int nodes[QUERY_PAGES];
	size_t page = page_bytes(), nr;

	*p = (struct placement){ 0 };
	for (size_t off = 0; off < r->bytes; off += nr * page) {
		nr = region_query(r, off, nodes);
		for (size_t i = 0; i < nr; i++) {
			if (nodes[i] == o->from)
				p->from_bytes += page;
			else if (nodes[i] == o->to)
				p->to_bytes += page;
			else
				bench_die(BENCH_FAILED,
					  "the page at byte %zu is on node %d, neither %d nor %d",
					  off + i * page, nodes[i], o->from,
					  o->to);
		}
	}
}

/*
 * A thread uses memory from the fast node, to which it moves.  Returns the CPU of
 * observers, so that their time does not count as lost.
 */
int tiers_choose_cpus(struct run *o)
{
	int fast = node_first_cpu(o->to), other;

	if (fast < 0)
		bench_die(BENCH_LACKING,
			  "node %d has no CPU: memory is promoted to nodes with CPUs",
			  o->to);
	o->cpu = CPU_ISSET(fast, &o->cpus) ? fast : o->cpu;
	other = run_other_cpu(o);
	if (other < 0)
		bench_die(BENCH_LACKING, "touching needs a second CPU");
	return other;
}
