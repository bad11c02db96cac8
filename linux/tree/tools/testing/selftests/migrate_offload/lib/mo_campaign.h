/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the fault campaign share. */
#ifndef MO_CAMPAIGN_H
#define MO_CAMPAIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

/* The work of movers and writers since load_start(). */
struct load_stats {
	unsigned long moved;		/* folios, by address */
	unsigned long left;		/* left in place by a call */
	unsigned long calls;		/* move_pages(2) calls, a batch each */
	unsigned long over_limit;	/* calls that exceeded their limit */
	unsigned long longest_us;
	unsigned long writes;
	unsigned long wrong_reads;	/* checks of writers before a write */
};

/* campaign_load.c: memory, movers and writers */
/* With @once, each folio moves once, and then stays. */
void load_start(unsigned long limit_us, __u64 seed, bool once);
void load_see(struct load_stats *stats);
/* Stop all movers and writers.  The memory stays. */
void load_stop(struct load_stats *stats);
/* Compare every byte.  Returns the number of intact bytes, or 0. */
size_t load_verify(void);
/* Move all memory once more, alone.  Returns the number of folios that stay. */
unsigned long load_settle(unsigned long *longest_us);
void load_end(void);

/* campaign_dma.c: the devices and dcbm */
struct dma_setup {
	unsigned int timeout_ms;
	bool out_of_order;
};

/* Load devices without faults, and dcbm as the active engine. */
void dma_load(const struct dma_setup *setup);
void dma_unload(void);
/* Unload and load dcbm, but not the devices, while movers migrate. */
void dcbm_reload(const struct dma_setup *setup);
/* Make dcbm release all channels, and take them again. */
void dcbm_off_and_on(void);
/* Write to a file of a channel, counted over all devices.  -1: all channels. */
void dma_set(int chan, const char *file, const char *text);
void dma_set_number(int chan, const char *file, unsigned long number);
/* The sum of a counter over all channels. */
unsigned long dma_count(const char *file);
void dma_no_faults(void);
void dma_vanish(unsigned int device);
void dma_return(unsigned int device);
/* Tell dcbm whether terminate_all stops the device. */
void dcbm_trust(bool stops);
/* Reset retired channels.  Returns how many work again.  *stay are retired. */
unsigned int dcbm_reset(unsigned int *stay);
/* The sum of a file of dcbm, such as errors, over all channels. */
unsigned long dcbm_chan_sum(const char *file);

/* campaign_leaks.c */
struct leaks_baseline {
	long kb;
	long mappings;
	long errors;
};

void leaks_prepare(void);
void leaks_before(struct leaks_baseline *before);
/* Print all leaks since the baseline.  Returns true if there are none. */
bool leaks_check(const struct leaks_baseline *before);
void leaks_done(void);
/* Errors that CONFIG_DMA_API_DEBUG has found. */
long leaks_dma_errors(void);
/* Folios that dcbm holds now. */
unsigned long leaks_held(void);

unsigned int dma_nr_chans(void);
unsigned int dma_nr_devices(void);

#endif /* MO_CAMPAIGN_H */
