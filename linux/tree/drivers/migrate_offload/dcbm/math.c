// SPDX-License-Identifier: GPL-2.0-only
/* dcbm: how to cut work up.  No state, no locks. */

#include <linux/align.h>
#include <linux/cache.h>
#include <linux/math.h>
#include <linux/math64.h>
#include <linux/minmax.h>
#include <linux/mm.h>
#include <linux/sizes.h>

#include "math.h"

/*
 * A channel is not worth its descriptor, mapping and interrupt for less than
 * this: 8 us at 4 GB/s.  Small folios need a descriptor each anyway.
 */
#define DCBM_MIN_PIECE		SZ_32K

/* A longer transfer does not make anything cheaper. */
#define DCBM_MAX_PIECE		SZ_512K

/*
 * Pieces for each channel.  One is least work for the caller.  With some more,
 * fast channels do more than slow ones, and all end at about the same time.
 */
#define DCBM_PIECES		4

/* The slowest that the channels of a job may be, as time: 10 MB/s. */
#define DCBM_NS_PER_BYTE	100U

/* A job takes no more than so many timeouts beyond the first two. */
#define DCBM_MAX_TIMEOUTS	8

/*
 * The longest transfer that a channel takes, or 0 when it takes none.
 *
 * @opt_mapping is dma_opt_mapping_size().  Each piece is mapped on its own, and
 * with an IOMMU this keeps the piece within what the per-CPU caches of IOVA
 * ranges serve, 128 KiB; anything larger searches a tree under a lock, and the
 * tree gets slower with use.  So a 2M folio is 16 mappings that are cheap each
 * rather than one that is not.  It also keeps each piece below what bounce
 * buffers hold (256 KiB), and lets every device map just what it copies.
 *
 * Pages are aligned, so pieces of a multiple of the alignment are, too.  A
 * piece must not share a cache line with its neighbour: on a device that is
 * not coherent, syncing one would spoil the other.
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

/* How many of the channels is a batch of this size worth? */
unsigned int dcbm_wanted(size_t bytes, unsigned int nr_usable)
{
	return clamp_t(size_t, bytes / DCBM_MIN_PIECE, 1, max(nr_usable, 1U));
}

/* How long a piece should be, on so many channels. */
size_t dcbm_piece(size_t bytes, unsigned int nr_chans)
{
	size_t share = DIV_ROUND_UP(bytes, nr_chans * DCBM_PIECES);

	return clamp_t(size_t, PAGE_ALIGN(share), DCBM_MIN_PIECE,
		       DCBM_MAX_PIECE);
}

/*
 * The length of the piece of a folio that starts at @offset.  Never crosses
 * the end of the folio.
 */
size_t dcbm_next_len(size_t folio_bytes, size_t offset, size_t piece,
		     size_t max_piece)
{
	return min3(folio_bytes - offset, piece, max_piece);
}

/*
 * How much of a batch should the CPU copy?  As much as each of the channels; what it
 * does not come to they take over.
 */
size_t dcbm_cpu_share(size_t bytes, unsigned int nr_chans)
{
	return rounddown(bytes / (nr_chans + 1), PAGE_SIZE);
}

/* A job may take this time beyond the timeouts.  A large job takes longer. */
u64 dcbm_extra_ns(size_t bytes, u64 timeout_ns)
{
	return min((u64)bytes * DCBM_NS_PER_BYTE,
		   DCBM_MAX_TIMEOUTS * timeout_ns);
}

/*
 * The most bytes that a channel may have in flight.  When the time of a job is
 * over, its pieces in flight have one timeout to come back.  At 10 MB/s these bytes
 * take half of it.
 */
size_t dcbm_max_flying(u64 timeout_ns)
{
	return max_t(size_t, div_u64(timeout_ns, 2 * DCBM_NS_PER_BYTE), 1);
}
