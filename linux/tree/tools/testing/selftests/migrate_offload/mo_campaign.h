/* SPDX-License-Identifier: GPL-2.0-only */
/* What the parts of the fault campaign share. */
#ifndef MO_CAMPAIGN_H
#define MO_CAMPAIGN_H

#include <stdbool.h>
#include <stddef.h>
#include <linux/types.h>

/* What movers and writers have done since load_start(). */
struct load_stats {
	unsigned long moved;		/* folios, by address */
	unsigned long left;		/* that a call left where they were */
	unsigned long calls;		/* of move_pages(2), of a batch each */
	unsigned long over_limit;	/* calls that took longer than they may */
	unsigned long longest_us;
	unsigned long writes;
	unsigned long wrong_reads;	/* by writers, before they write */
};

/* campaign_load.c: memory, those who move it and those who write to it */
/* With @once, each folio is moved once, and then stays. */
void load_start(unsigned long limit_us, __u64 seed, bool once);
void load_see(struct load_stats *stats);
/* Everybody stops; the memory stays. */
void load_stop(struct load_stats *stats);
/* Compare every byte.  Returns how many were right, or 0. */
size_t load_verify(void);
/* Move all of it once more with nobody around.  Folios that will not. */
unsigned long load_settle(unsigned long *longest_us);
void load_end(void);

/* campaign_dma.c: the device, and the engine that uses it */
struct dma_setup {
	unsigned int timeout_ms;
	bool out_of_order;
};

/* Devices and engine, without any fault, and the engine active. */
void dma_load(const struct dma_setup *setup);
void dma_unload(void);
/* Without the devices: while others migrate, the engine goes and comes back. */
void dcbm_reload(const struct dma_setup *setup);
/* Give all channels back, and get them again. */
void dcbm_off_and_on(void);
/* A file of one channel of all devices, counted from 0, or of all with -1. */
void dma_set(int chan, const char *file, const char *text);
void dma_set_number(int chan, const char *file, unsigned long number);
/* Sum of a counter over all channels. */
unsigned long dma_count(const char *file);
void dma_no_faults(void);
void dma_vanish(unsigned int device);
void dma_return(unsigned int device);
/* Believe that terminating stops the device, or not. */
void dcbm_trust(bool stops);
/* Bring back what was retired.  Returns how many came; *stay did not. */
unsigned int dcbm_reset(unsigned int *stay);
/* Errors and timeouts of all channels. */
unsigned long dcbm_chan_sum(const char *file);

/* campaign_leaks.c */
struct leaks_baseline {
	long kb;
	long mappings;
	long errors;
};

void leaks_prepare(void);
void leaks_before(struct leaks_baseline *before);
/* Says what is there now that was not; true if that is nothing. */
bool leaks_check(const struct leaks_baseline *before);
void leaks_done(void);
/* Mistakes that CONFIG_DMA_API_DEBUG has found. */
long leaks_dma_errors(void);
/* Folios that are held now. */
unsigned long leaks_held(void);

unsigned int dma_nr_chans(void);
unsigned int dma_nr_devices(void);

#endif /* MO_CAMPAIGN_H */
