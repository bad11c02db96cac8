// SPDX-License-Identifier: GPL-2.0-only
/* dcbm: the arithmetic of dividing work.  It has no state and no locks. */

#include <linux/align.h>
#include <linux/cache.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "math.h"

/* Longer transfers cost no less per byte. */
#define DCBM_MAX_PIECE		SZ_512K

/*
 * Pieces for each channel.  One piece is the least work for the task, but a
 * channel would run dry before the task wakes up.
 */
#define DCBM_PIECES		2

/* Up to this many bytes share one interrupt: 16 small folios. */
#define DCBM_RUN		SZ_64K

/* The slowest rate that the channels of a job may have together: 10 MB/s. */
#define DCBM_NS_PER_BYTE	100U

/* The size of a job adds at most this many timeouts to its time limit. */
#define DCBM_MAX_TIMEOUTS	8

/*
 * Returns the limit of a device's segments, of which its driver has @said.  Many
 * drivers split transfers of any length, and say nothing.  The kernel then
 * assumes 64 KiB, which is safe for scatterlists, and says so for each PCI
 * device in advance.  A driver that refuses more gets less: dcbm_chan_refused().
 */
size_t dcbm_max_seg(unsigned int said, bool is_pci)
{
	return !said || (is_pci && said == SZ_64K) ? SIZE_MAX : said;
}

/*
 * Returns the longest transfer that a channel takes, or 0 if it takes none.
 *
 * @opt_mapping is dma_opt_mapping_size().  Each piece is mapped on its own.
 * With an IOMMU, the per-CPU caches of IOVA ranges serve up to 128 KiB.  A
 * longer mapping searches a tree under a lock, and the tree gets slower with
 * use.  So 16 short mappings of a 2M folio cost less than a long one.  This
 * also keeps a piece below the limit of bounce buffers, 256 KiB.
 *
 * Pages are aligned, so pieces of a multiple of the alignment are, too.  Pieces
 * must not share a cache line.  On a device that is not coherent, the sync of
 * one piece would overwrite its neighbour.
 */
size_t dcbm_max_piece(size_t max_seg, unsigned int copy_align,
		      size_t opt_mapping)
{
	size_t max = min(max_seg, opt_mapping);
	size_t unit = max_t(size_t, SMP_CACHE_BYTES, ARCH_DMA_MINALIGN);

	if (copy_align > PAGE_SHIFT)
		return 0;
	unit = max_t(size_t, unit, 1UL << copy_align);
	if (max >= PAGE_SIZE)
		unit = PAGE_SIZE;
	return min_t(size_t, rounddown(max, unit), DCBM_MAX_PIECE);
}

/* Returns how many channels a batch of this size is worth. */
unsigned int dcbm_wanted(size_t bytes, unsigned int nr_usable)
{
	return clamp_t(size_t, bytes / DCBM_MIN_PIECE, 1, max(nr_usable, 1U));
}

/*
 * Returns how many bytes of small folios a channel gets at once.  A short batch
 * occupies all channels: slow ones would need longer for more folios each.
 */
size_t dcbm_run(size_t bytes, unsigned int nr_chans)
{
	return clamp_t(size_t, PAGE_ALIGN(DIV_ROUND_UP(bytes, nr_chans)),
		       PAGE_SIZE, DCBM_RUN);
}

/* Returns the size of a piece of a large folio for this number of channels. */
size_t dcbm_piece(size_t bytes, unsigned int nr_chans)
{
	size_t share = DIV_ROUND_UP(bytes, nr_chans);
	size_t piece = max(share / DCBM_PIECES, min(share, DCBM_RUN));

	return clamp_t(size_t, PAGE_ALIGN(piece), DCBM_MIN_PIECE,
		       DCBM_MAX_PIECE);
}

/*
 * Returns the CPU's share of a batch: as much as each channel gets.  Channels
 * take over the part that the CPU does not reach.
 */
size_t dcbm_cpu_share(size_t bytes, unsigned int nr_chans)
{
	return rounddown(bytes / (nr_chans + 1), PAGE_SIZE);
}

/* Returns the time that the size of a job adds to its timeouts. */
u64 dcbm_extra_ns(size_t bytes, u64 timeout_ns)
{
	return min((u64)bytes * DCBM_NS_PER_BYTE,
		   DCBM_MAX_TIMEOUTS * timeout_ns);
}

/*
 * Returns the most bytes that a channel may have in flight.  When the time of a
 * job is over, its pieces in flight have one timeout to come back.  At 10 MB/s
 * these bytes take half of that timeout.
 */
size_t dcbm_max_flying(u64 timeout_ns)
{
	return max_t(size_t, div_u64(timeout_ns, 2 * DCBM_NS_PER_BYTE), 1);
}
