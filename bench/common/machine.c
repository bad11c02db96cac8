// SPDX-License-Identifier: GPL-2.0-only
/*
 * Nodes and CPUs, and the settings of everything else that moves or changes
 * pages.
 */
#include <errno.h>
#include <fcntl.h>
#include <linux/mempolicy.h>
#include <sched.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "bench.h"

#define MAX_NODES 1024
#define NODE_DIR "/sys/devices/system/node"

size_t page_bytes(void)
{
	return (size_t)sysconf(_SC_PAGESIZE);
}

/* List the nodes with memory in the format of numactl: "0-1,3". */
void node_list(char *buf, size_t size)
{
	if (!file_read(NODE_DIR "/has_memory", buf, size))
		snprintf(buf, size, "0");
}

/* Returns -1 for a node without CPUs. */
int node_first_cpu(int node)
{
	char path[64], list[256];
	int cpu;

	snprintf(path, sizeof(path), NODE_DIR "/node%d/cpulist", node);
	if (!file_read(path, list, sizeof(list)))
		return -1;
	return sscanf(list, "%d", &cpu) == 1 ? cpu : -1;
}

bool node_free_bytes(int node, uint64_t *bytes)
{
	uint64_t pages;
	char path[64];

	snprintf(path, sizeof(path), NODE_DIR "/node%d/vmstat", node);
	if (!line_read_u64(path, "nr_free_pages", &pages))
		return false;
	*bytes = pages * page_bytes();
	return true;
}

/*
 * The bytes of a node that @bytes of moved memory take.  The rest is for lists
 * of addresses, page tables and the kernel's reserves.
 */
uint64_t node_needs(uint64_t bytes)
{
	return bytes + bytes / 16 + (16 << 20);
}

/* End the program unless @node has room for @bytes of moved memory. */
void node_check_free(int node, uint64_t bytes)
{
	uint64_t needed = node_needs(bytes), free;
	char nodes[64];

	node_list(nodes, sizeof(nodes));
	if (!node_free_bytes(node, &free))
		bench_die(BENCH_LACKING,
			  "node %d does not exist: this machine has memory on node %s",
			  node, nodes);
	if (free < needed)
		bench_die(BENCH_LACKING,
			  "node %d has %llu bytes free, but moving %llu bytes takes %llu: move less",
			  node, (unsigned long long)free,
			  (unsigned long long)bytes,
			  (unsigned long long)needed);
}

struct node_mask {
	unsigned long bits[MAX_NODES / (8 * sizeof(unsigned long))];
};

static struct node_mask node_mask(int node)
{
	const size_t bits = 8 * sizeof(unsigned long);
	struct node_mask mask = { 0 };

	mask.bits[(size_t)node / bits] = 1UL << ((size_t)node % bits);
	return mask;
}

/*
 * Place all pages on @node that are allocated from now on, and with the flag
 * MPOL_MF_MOVE also present ones.
 */
void memory_bind(void *base, size_t bytes, int node, unsigned int flags)
{
	struct node_mask mask = node_mask(node);

	if (syscall(SYS_mbind, base, bytes, MPOL_BIND, mask.bits, MAX_NODES,
		    flags))
		bench_die(BENCH_LACKING, "mbind to node %d: %s", node,
			  strerror(errno));
}

/* Remove the memory policy, which would keep memory on its node. */
void memory_unbind(void *base, size_t bytes)
{
	if (syscall(SYS_mbind, base, bytes, MPOL_DEFAULT, NULL, 0UL, 0))
		bench_die(BENCH_FAILED, "mbind to no node: %s",
			  strerror(errno));
}

/* Place page cache that this task reads; its mappings have no say in that. */
void task_bind(int node)
{
	struct node_mask mask = node_mask(node);

	if (syscall(SYS_set_mempolicy, MPOL_BIND, mask.bits, MAX_NODES))
		bench_die(BENCH_LACKING, "set_mempolicy to node %d: %s", node,
			  strerror(errno));
}

void task_unbind(void)
{
	if (syscall(SYS_set_mempolicy, MPOL_DEFAULT, NULL, 0UL))
		bench_die(BENCH_FAILED, "set_mempolicy to no node: %s",
			  strerror(errno));
}

void pin_to_cpu(int cpu)
{
	cpu_set_t set;

	CPU_ZERO(&set);
	CPU_SET(cpu, &set);
	if (sched_setaffinity(0, sizeof(set), &set))
		bench_die(BENCH_LACKING, "cannot run on CPU %d: %s", cpu,
			  strerror(errno));
}

static void module_load(const char *module)
{
	const char *end = strstr(module, ".ko ");
	const char *parameters = end ? end + 4 : "";
	char path[4096];
	int fd;

	snprintf(path, sizeof(path), "%.*s",
		 end ? (int)(end + 3 - module) : (int)sizeof(path), module);
	fd = open(path, O_RDONLY | O_CLOEXEC);
	if (fd < 0)
		bench_die(BENCH_LACKING, "cannot open module %s: %s", path,
			  strerror(errno));
	/* A module that is already loaded is no error. */
	if (syscall(SYS_finit_module, fd, parameters, 0) && errno != EEXIST)
		bench_die(BENCH_LACKING, "cannot load module %s: %s", path,
			  strerror(errno));
	close(fd);
}

void modules_load(const struct modules *modules)
{
	for (size_t i = 0; i < modules->nr; i++)
		module_load(modules->names[i]);
}

static void report_cpu_model(void)
{
	FILE *f = fopen("/proc/cpuinfo", "re");
	char line[256];

	while (f && fgets(line, sizeof(line), f)) {
		char *value = strchr(line, ':');

		/* Some architectures lack this line. */
		if (strncmp(line, "model name", 10) || !value)
			continue;
		value[strcspn(value, "\n")] = '\0';
		json_str("cpu_model", value + 1 + (value[1] == ' '));
		break;
	}
	if (f)
		fclose(f);
}

/* Describe the machine in the open JSON object. */
void machine_report(void)
{
	struct utsname uts;
	char nodes[64];
	cpu_set_t cpus;

	uname(&uts);
	node_list(nodes, sizeof(nodes));
	json_str("release", uts.release);
	json_str("version", uts.version);
	json_str("nodes", nodes);
	if (!sched_getaffinity(0, sizeof(cpus), &cpus))
		json_u64("cpus", (uint64_t)CPU_COUNT(&cpus));
	report_cpu_model();
}

/*
 * Report the settings of all else that moves or changes pages, in the open JSON
 * object.  Switch it off until the settings are restored.
 */
void machine_quiet(void)
{
	setting_report_and_pin("numa_balancing_found",
			       "/proc/sys/kernel/numa_balancing", "0");
	setting_report_and_pin("khugepaged_defrag_found",
			       "/sys/kernel/mm/transparent_hugepage/khugepaged/defrag",
			       "0");
	setting_report_and_pin("ksm_run_found", "/sys/kernel/mm/ksm/run", "0");
	setting_report("thp_enabled_found",
		       "/sys/kernel/mm/transparent_hugepage/enabled");
}
