// SPDX-License-Identifier: GPL-2.0-only
/* Selects the kernel's copy engine through sysfs, and reads counters. */
#include <errno.h>
#include <glob.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "bench.h"
#include "engine.h"

#define THREADS_PARAM "/sys/module/mtcopy/parameters/max_threads"
#define DCBM_DIR "/sys/module/dcbm"

/* Parse "mtcopy:threads=2": with "mtcopy" and ":threads=" gives 2. */
static bool option_parse(const char *option, const char *name, uint64_t max,
			 unsigned int *number)
{
	size_t len = strlen(name);
	uint64_t value;

	if (strncmp(option, name, len) ||
	    !parse_u64(option + len, &value) || value > max)
		return false;
	*number = (unsigned int)value;
	return true;
}

/* "stock", "cpu", "mtcopy:threads=2", "dcbm:channels=4" */
bool variant_parse(const char *text, struct variant *v)
{
	size_t len = strcspn(text, ":");

	*v = (struct variant){ .threads = 1 };
	if (!len || len >= sizeof(v->engine))
		return false;
	memcpy(v->engine, text, len);
	if (!strcmp(v->engine, "mtcopy"))
		v->threads = 0;
	if (!text[len])
		return true;
	if (!strcmp(v->engine, "mtcopy"))
		return option_parse(text + len, ":threads=", 1024, &v->threads);
	if (!strcmp(v->engine, "dcbm"))
		return option_parse(text + len, ":channels=", 64, &v->channels);
	return false;
}

/*
 * Returns true if no engine is active.  "stock" is a kernel without engines, or
 * behaves as one.  "off" is a kernel with engines, which unmaps and maps folios
 * in its own way.
 */
bool is_stock(const struct variant *v)
{
	return !strcmp(v->engine, "stock") || !strcmp(v->engine, "off");
}

static bool word_in(const char *word, const char *list)
{
	size_t len = strlen(word);

	while (*list) {
		size_t next = strcspn(list, " \n");

		if (next == len && !strncmp(list, word, len))
			return true;
		list += next + strspn(list + next, " \n");
	}
	return false;
}

/* End the program before any measurement if this kernel cannot do @v. */
void engine_check(const struct variant *v)
{
	char available[256];

	if (v->limit || !strcmp(v->engine, "stock"))
		return;
	if (!file_read(OFFLOAD_DIR "/available_engines", available,
		       sizeof(available)))
		bench_die(BENCH_LACKING,
			  "engine '%s' needs " OFFLOAD_DIR
			  ", which this kernel does not have (a kernel made by 'pageferry kernel build' has it)",
			  v->engine);
	if (!is_stock(v) && !word_in(v->engine, available))
		bench_die(BENCH_LACKING,
			  "engine '%s' is not available; this kernel has: %s (is its module loaded?)",
			  v->engine, available);
	if (!is_stock(v) && access(OFFLOAD_DEBUG_DIR "/engine_always", W_OK))
		bench_die(BENCH_LACKING,
			  "cannot write " OFFLOAD_DEBUG_DIR "/engine_always: %s (is debugfs mounted, and are you root?)",
			  strerror(errno));
	if (!strcmp(v->engine, "mtcopy") && access(THREADS_PARAM, W_OK))
		bench_die(BENCH_LACKING, "cannot write %s: %s", THREADS_PARAM,
			  strerror(errno));
	if (!strcmp(v->engine, "dcbm") && access(DCBM_DIR "/offloading", W_OK))
		bench_die(BENCH_LACKING, "cannot write %s: %s",
			  DCBM_DIR "/offloading", strerror(errno));
}

static void pin_if_there(const char *path, const char *value)
{
	if (!access(path, F_OK))
		setting_must_pin(path, value);
}

/*
 * Use one engine for all reasons, or none.  Selecting "none" in general drops the
 * engines of reasons.  So remember these first, and restore them last.
 */
static void engines_of_reasons(void)
{
	glob_t files;

	if (glob(OFFLOAD_DIR "/engine_of/*", 0, NULL, &files))
		return;
	for (size_t i = 0; i < files.gl_pathc; i++)
		pin_if_there(files.gl_pathv[i], "default");
	globfree(&files);
}

/* No variant verifies copies in the kernel: that test mode costs time. */
void engine_prepare(void)
{
	engines_of_reasons();
	/* Restoring the settings of dcbm may select dcbm. */
	setting_keep(OFFLOAD_DIR "/engine", NULL);
	pin_if_there(OFFLOAD_DEBUG_DIR "/verify", "0");
}

/*
 * Restore the present limit at the end.  The default must be restored as such:
 * its number would be a fixed limit.
 */
void engine_limit_keep(void)
{
	char is_default[8];

	setting_value(OFFLOAD_DIR "/max_unmapped_is_default", is_default,
		      sizeof(is_default));
	if (!strcmp(is_default, "true"))
		setting_keep(OFFLOAD_DIR "/max_unmapped_us", "default");
}

/* Limit the unmapped time of a folio; "0" means no limit. */
void engine_limit(const char *us)
{
	engine_limit_keep();
	pin_if_there(OFFLOAD_DIR "/max_unmapped_us", us);
}

/* Slow simulated channels may take minutes to copy 1 GiB. */
void engine_allow_large(void)
{
	pin_if_there(DCBM_DIR "/parameters/timeout_ms", "30000");
}

/* Use as many channels as @v asks for. */
static void dcbm_select(const struct variant *v)
{
	glob_t found = { 0 };

	if (v->channels)
		pin_if_there(DCBM_DIR "/nr_dma_chan", decimal(v->channels).text);
	pin_if_there(DCBM_DIR "/offloading", "1");
	glob(DCBM_DIR "/channels/*", 0, NULL, &found);
	if (v->channels && found.gl_pathc != v->channels)
		bench_die(BENCH_LACKING,
			  "dcbm found %zu free DMA channels, not %u (see /sys/class/dma)",
			  found.gl_pathc, v->channels);
	globfree(&found);
}

/* Let the CPU copy as stock Linux does, or as the program found it. */
void engine_copy_as_stock(bool stock)
{
	static const char path[] = OFFLOAD_DIR "/copy_routine";
	static char found[16];

	if (!found[0])
		setting_value(path, found, sizeof(found));
	pin_if_there(path, stock ? "pages" : found);
}

void engine_select(const struct variant *v)
{
	const char *name = is_stock(v) ? "none" : v->engine;
	bool stock = !strcmp(v->engine, "stock");

	/* Stock Linux unmaps and maps entries one by one. */
	pin_if_there(OFFLOAD_DIR "/batch_ptes", stock ? "false" : "true");
	engine_copy_as_stock(stock);

	if (!strcmp(v->engine, "mtcopy"))
		pin_if_there(THREADS_PARAM, decimal(v->threads).text);
	if (!strcmp(v->engine, "dcbm"))
		dcbm_select(v);
	/* It is what is measured, also where the CPU would be sooner. */
	pin_if_there(OFFLOAD_DEBUG_DIR "/engine_always", "1");
	pin_if_there(OFFLOAD_DIR "/engine", name);
}

const char *const copy_counters[] = { "engine_bytes", "cpu_bytes",
				      "offered_folios", "batches", NULL };

struct counters engine_counters(const struct variant *v)
{
	static const char *const names[] = { [ENGINE_BYTES] = "engine_bytes",
					     [ENGINE_NS] = "engine_ns", NULL };
	struct counters c = { .names = names };

	snprintf(c.dir, sizeof(c.dir), "/stats/engines/%s", v->engine);
	return c;
}

static bool counter_read(const struct counters *c, const char *name,
			 uint64_t *value)
{
	char path[160];

	if (!c->dir[0])
		return line_read_u64("/proc/vmstat", name, value);
	snprintf(path, sizeof(path), OFFLOAD_DIR "%s/%s", c->dir, name);
	return file_read_u64(path, value);
}

void counters_read(struct counters *c, bool since)
{
	for (size_t i = 0; c->names[i]; i++) {
		uint64_t value = 0;

		c->known[i] = counter_read(c, c->names[i], &value);
		c->value[i] = since ? value - c->value[i] : value;
	}
}

void counters_report(const struct counters *c)
{
	for (size_t i = 0; c->names[i]; i++)
		json_u64_or_null(c->names[i], c->known[i], c->value[i]);
}

void counters_flush(void)
{
	char ignored[8];

	file_read("/proc/sys/vm/stat_refresh", ignored, sizeof(ignored));
}

/* Report the settings before any is pinned. */
void engine_report(void)
{
	setting_report("engine_found", OFFLOAD_DIR "/engine");
	setting_report("available_engines", OFFLOAD_DIR "/available_engines");
	setting_report("copy_routine_found", OFFLOAD_DIR "/copy_routine_reason");
	setting_report("max_unmapped_us_found", OFFLOAD_DIR "/max_unmapped_us");
	setting_report("max_batch_pages_found",
		       OFFLOAD_DEBUG_DIR "/max_batch_pages");
	setting_report("max_windows_found", OFFLOAD_DEBUG_DIR "/max_windows");
	setting_report("streaming_found", OFFLOAD_DEBUG_DIR "/streaming");
	setting_report("mtcopy_max_threads_found", THREADS_PARAM);
	setting_report("mtcopy_min_thread_bytes",
		    "/sys/module/mtcopy/parameters/min_thread_bytes");
	setting_report("dmasim_bandwidth_mbps",
		    "/sys/module/dmasim/parameters/bandwidth_mbps");
	setting_report("dmasim_latency_us",
		    "/sys/module/dmasim/parameters/latency_us");
}
