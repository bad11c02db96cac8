// SPDX-License-Identifier: GPL-2.0-only
/*
 * The simulated DMA devices of the fault campaign, and dcbm, which uses them.
 * The functions act as an administrator, or as broken hardware.
 */
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "mo_campaign.h"
#include "mo_util.h"

#define PATH_DCBM "/sys/module/dcbm/"
#define PATH_CHANNELS PATH_DCBM "channels/"
#define PATH_DMASIM "/sys/kernel/debug/dmasim/"
#define PATH_DRIVER "/sys/bus/platform/drivers/dmasim/"

/* One device near each node. */
#define NR_DEVICES 2
#define NR_CHANS 2

static const char *const faults[] = {
	"fail_every", "stall_every", "late_every", "lose_irq_every",
	"refuse_every", "fail_nth", "stall_nth", "late_nth", "lose_irq_nth",
	"refuse_nth", "reject_every", "hide_error_every", "abort_every", "dead",
};

static bool gone[NR_DEVICES];

unsigned int dma_nr_devices(void)
{
	return NR_DEVICES;
}

unsigned int dma_nr_chans(void)
{
	return NR_DEVICES * NR_CHANS;
}

static void modprobe(const char *const argv[])
{
	if (mo_run(argv))
		mo_die("%s %s failed", argv[1], argv[2] ? argv[2] : "");
}

static void unload(const char *module)
{
	const char *const argv[] = { "modprobe", "-r", module, NULL };

	if (mo_run(argv))
		mo_die("%s cannot be removed", module);
}

static void dcbm_load(const struct dma_setup *setup)
{
	const char *const argv[] = { "modprobe", "dcbm", NULL };

	modprobe(argv);
	mo_write_number(PATH_DCBM "parameters/timeout_ms", setup->timeout_ms);
	/*
	 * Without a time limit, windows are full, so the longest call follows
	 * from their number.
	 */
	mo_set_limit("max_unmapped_us", 0);
	mo_write(PATH_DCBM "offloading", "1");
	mo_select("dcbm");
}

void dma_load(const struct dma_setup *setup)
{
	char nodes[32], chans[32], devices[32];
	const char *const argv[] = {
		"modprobe", "dmasim", devices, chans, nodes, "private=Y",
		/* A batch of small folios needs more descriptors than this. */
		"descriptors=24", "max_seg_bytes=262144",
		setup->out_of_order ? "out_of_order=Y" : "out_of_order=N", NULL,
	};

	snprintf(devices, sizeof(devices), "devices=%d", NR_DEVICES);
	snprintf(chans, sizeof(chans), "channels=%d", NR_CHANS);
	snprintf(nodes, sizeof(nodes), "nodes=%d,%d", mo_nodes[0], mo_nodes[1]);
	modprobe(argv);
	memset(gone, 0, sizeof(gone));
	dcbm_load(setup);
}

void dma_unload(void)
{
	mo_select("none");
	unload("dcbm");
	unload("dmasim");
}

void dcbm_reload(const struct dma_setup *setup)
{
	mo_select("cpu");
	unload("dcbm");
	dcbm_load(setup);
}

void dcbm_off_and_on(void)
{
	int tries;

	mo_write(PATH_DCBM "offloading", "0");
	/* dcbm may still wait for late transfers of all channels. */
	for (tries = 0; tries < 6000; tries++) {
		if (!mo_try_write(PATH_DCBM "offloading", "1"))
			return;
		usleep(10000);
	}
	mo_die("dcbm finds no channel");
}

void dma_set(int chan, const char *file, const char *text)
{
	char path[128];
	int i;

	for (i = 0; i < NR_DEVICES * NR_CHANS; i++) {
		if ((chan >= 0 && chan != i) || gone[i / NR_CHANS])
			continue;
		snprintf(path, sizeof(path), PATH_DMASIM "dmasim.%d/chan%d/%s",
			 i / NR_CHANS, i % NR_CHANS, file);
		mo_write(path, text);
	}
}

void dma_set_number(int chan, const char *file, unsigned long number)
{
	char text[32];

	snprintf(text, sizeof(text), "%lu", number);
	dma_set(chan, file, text);
}

unsigned long dma_count(const char *file)
{
	unsigned long sum = 0;
	char path[128];
	int i;

	for (i = 0; i < NR_DEVICES * NR_CHANS; i++) {
		if (gone[i / NR_CHANS])
			continue;
		snprintf(path, sizeof(path), PATH_DMASIM "dmasim.%d/chan%d/%s",
			 i / NR_CHANS, i % NR_CHANS, file);
		sum += mo_read_number(path);
	}
	return sum;
}

void dma_no_faults(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++)
		dma_set(-1, faults[i], "0");
}

static void write_name(const char *file, unsigned int device)
{
	char name[32];

	snprintf(name, sizeof(name), "dmasim.%u", device);
	mo_write(file, name);
}

/* The device vanishes first, and its driver notices later. */
void dma_vanish(unsigned int device)
{
	char path[64];

	snprintf(path, sizeof(path), PATH_DMASIM "dmasim.%u/vanish", device);
	mo_write(path, "1");
	usleep(20000);
	write_name(PATH_DRIVER "unbind", device);
	gone[device] = true;
}

void dma_return(unsigned int device)
{
	write_name(PATH_DRIVER "bind", device);
	gone[device] = false;
	/* This write makes dcbm look for channels again. */
	mo_write(PATH_DCBM "nr_dma_chan", "16");
}

static DIR *open_chans(void)
{
	DIR *dir = opendir(PATH_CHANNELS);

	if (!dir)
		mo_die("cannot open " PATH_CHANNELS ": %m");
	return dir;
}

/*
 * Open the next channel of dcbm.  Returns false, and closes @dir, after the
 * last.
 */
static bool next_chan(DIR *dir, char *name, size_t size)
{
	struct dirent *entry;

	while ((entry = readdir(dir))) {
		if (entry->d_name[0] == '.')
			continue;
		if (snprintf(name, size, "%s", entry->d_name) >= (int)size)
			mo_die("the name %s is too long", entry->d_name);
		return true;
	}
	closedir(dir);
	return false;
}

static void chan_path(char *path, size_t size, const char *chan, const char *file)
{
	snprintf(path, size, PATH_CHANNELS "%s/%s", chan, file);
}

/*
 * Returns true if a channel did what it was asked to.  dcbm may release a channel
 * at any time, if a late transfer ends.
 */
static bool chan_did(const char *path, int ret)
{
	if (ret && ret != -ENOENT && ret != -ENODEV)
		mo_die("cannot use %s: %s", path, strerror(-ret));
	return !ret;
}

void dcbm_trust(bool stops)
{
	DIR *dir = open_chans();
	char name[64], path[128];

	while (next_chan(dir, name, sizeof(name))) {
		chan_path(path, sizeof(path), name, "terminate_stops");
		chan_did(path, mo_try_write(path, stops ? "1" : "0"));
	}
}

unsigned int dcbm_reset(unsigned int *stay)
{
	char name[64], path[128], state[32];
	DIR *dir = open_chans();
	unsigned int back = 0;
	int ret;

	*stay = 0;
	while (next_chan(dir, name, sizeof(name))) {
		chan_path(path, sizeof(path), name, "state");
		if (!chan_did(path, mo_try_read(path, state, sizeof(state))) ||
		    strncmp(state, "retired", 7))
			continue;
		chan_path(path, sizeof(path), name, "reset");
		ret = mo_try_write(path, "1");
		if (ret == -EBUSY)
			++*stay;
		else
			back += chan_did(path, ret);
	}
	return back;
}

unsigned long dcbm_chan_sum(const char *file)
{
	DIR *dir = open_chans();
	char name[64], path[128], text[32];
	unsigned long sum = 0;

	while (next_chan(dir, name, sizeof(name))) {
		chan_path(path, sizeof(path), name, file);
		if (chan_did(path, mo_try_read(path, text, sizeof(text))))
			sum += strtoul(text, NULL, 10);
	}
	return sum;
}
