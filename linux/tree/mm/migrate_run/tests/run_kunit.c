// SPDX-License-Identifier: GPL-2.0-only
/*
 * KUnit tests of rows and of runs.  mm/migrate_run/run.c includes this file,
 * which gives access to static functions.
 */

#include <kunit/test.h>

#define MO_ROW_MAX 5

/* A VMA that begins inside one page table, and ends inside the next but one. */
#define MO_VMA_START (4 * PMD_SIZE + 3 * PAGE_SIZE)
#define MO_VMA_END (6 * PMD_SIZE + 3 * PAGE_SIZE)
#define MO_VMA_PGOFF 1000

/* Make a row at @addr, with folios at these distances in pages. */
static struct migrate_row mo_row(struct kunit *test, unsigned long addr,
				 const long (*at)[MO_ROW_MAX])
{
	struct vm_area_struct vma = {
		.vm_start = MO_VMA_START,
		.vm_end = MO_VMA_END,
		.vm_pgoff = MO_VMA_PGOFF,
	};
	struct folio **folios;
	struct migrate_row row;
	unsigned int i;

	folios = kunit_kcalloc(test, MO_ROW_MAX, sizeof(*folios), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, folios);
	for (i = 0; i < MO_ROW_MAX; i++) {
		folios[i] = kunit_kzalloc(test, sizeof(*folios[i]), GFP_KERNEL);
		KUNIT_ASSERT_NOT_NULL(test, folios[i]);
		folios[i]->index = linear_page_index(&vma, addr) + (*at)[i];
	}
	migrate_row_init(&row, folios, MO_ROW_MAX, &vma, addr);
	KUNIT_EXPECT_EQ(test, row.addr, addr);
	return row;
}

/* Expect @nr folios, from @first to @last in pages from the row's address. */
static void mo_expect_row(struct kunit *test, const struct migrate_row *row,
			  unsigned int nr, long first, long last)
{
	KUNIT_EXPECT_EQ(test, row->nr, nr);
	KUNIT_EXPECT_EQ(test, row->start, row->addr + first * (long)PAGE_SIZE);
	KUNIT_EXPECT_EQ(test, row->end, row->addr + (last + 1) * (long)PAGE_SIZE);
}

/* The folios of a row may have any order, and gaps. */
static void mo_test_row_order(struct kunit *test)
{
	const long forth[] = { 0, 1, 2, 3, 4 }, back[] = { 0, -1, -2, -3, -4 };
	const long mixed[] = { 0, 9, -8, 4, -3 };
	const unsigned long addr = MO_VMA_START + 50 * PAGE_SIZE;
	struct migrate_row row;
	unsigned int i;

	row = mo_row(test, addr, &forth);
	mo_expect_row(test, &row, MO_ROW_MAX, 0, 4);
	row = mo_row(test, addr, &back);
	mo_expect_row(test, &row, MO_ROW_MAX, -4, 0);
	row = mo_row(test, addr, &mixed);
	mo_expect_row(test, &row, MO_ROW_MAX, -8, 9);
	for (i = 0; i < MO_ROW_MAX; i++)
		KUNIT_EXPECT_EQ(test, migrate_row_addr(&row, i),
				addr + mixed[i] * (long)PAGE_SIZE);
}

/* All folios must lie within the span of one flush. */
static void mo_test_row_span(struct kunit *test)
{
	const long just[] = { 0, -30, 1, -15, 1 }, too_far[] = { 0, -30, 2, 1, 1 };
	const unsigned long addr = MO_VMA_START + 50 * PAGE_SIZE;
	struct migrate_row row;

	BUILD_BUG_ON(MIGRATE_ROW_SPAN != 32);
	row = mo_row(test, addr, &just);
	mo_expect_row(test, &row, MO_ROW_MAX, -30, 1);
	row = mo_row(test, addr, &too_far);
	mo_expect_row(test, &row, 2, -30, 0);
}

/*
 * All folios must lie in one page table and one VMA. The anon_vma may also lead
 * to folios far outside the VMA.
 */
static void mo_test_row_bounds(struct kunit *test)
{
	const long back[] = { 0, -1, -2, -3, -4 }, forth[] = { 0, 1, 2, 3, 4 };
	const long far[] = { 0, -(long)(MO_VMA_PGOFF + 5), 1, 1, 1 };
	const long farther[] = { 0, LONG_MAX / 2, 1, 1, 1 };
	struct migrate_row row;

	row = mo_row(test, MO_VMA_START + 2 * PAGE_SIZE, &back);
	mo_expect_row(test, &row, 3, -2, 0);
	row = mo_row(test, 5 * PMD_SIZE, &back);
	mo_expect_row(test, &row, 1, 0, 0);
	row = mo_row(test, 5 * PMD_SIZE - 2 * PAGE_SIZE, &forth);
	mo_expect_row(test, &row, 2, 0, 1);
	row = mo_row(test, MO_VMA_END - 3 * PAGE_SIZE, &forth);
	mo_expect_row(test, &row, 3, 0, 2);
	row = mo_row(test, MO_VMA_START + 5 * PAGE_SIZE, &far);
	mo_expect_row(test, &row, 1, 0, 0);
	row = mo_row(test, MO_VMA_START + 5 * PAGE_SIZE, &farther);
	mo_expect_row(test, &row, 1, 0, 0);
}

/* One flush covers @nr entries from the @nth on.  The lowest is at @at. */
static void mo_expect_piece(struct kunit *test, const struct migrate_row *row,
			    unsigned int nth, unsigned int nr, long at)
{
	unsigned long addr;

	KUNIT_EXPECT_EQ(test, migrate_row_piece(row, nth, &addr), nr);
	KUNIT_EXPECT_EQ(test, addr, row->addr + at * (long)PAGE_SIZE);
}

/* A flush skips gaps.  Adjacent entries in any order form one piece. */
static void mo_test_row_pieces(struct kunit *test)
{
	const long back[] = { 0, -1, -2, -3, -4 }, gaps[] = { 0, 31, 1, 2, 8 };
	const unsigned long addr = MO_VMA_START + 50 * PAGE_SIZE;
	struct migrate_row row;

	row = mo_row(test, addr, &back);
	mo_expect_piece(test, &row, 0, MO_ROW_MAX, -4);
	row = mo_row(test, addr, &gaps);
	KUNIT_EXPECT_EQ(test, row.nr, MO_ROW_MAX);
	mo_expect_piece(test, &row, 0, 1, 0);
	mo_expect_piece(test, &row, 1, 1, 31);
	mo_expect_piece(test, &row, 2, 2, 1);
	mo_expect_piece(test, &row, 4, 1, 8);
}

/*
 * Entries that were not cleared are cut off, and the flush covers only the
 * others.  This also holds if the lowest address was cut off.
 */
static void mo_test_row_cut(struct kunit *test)
{
	const long below[] = { 0, 1, -5, -6, -7 }, back[] = { 0, -1, -2, -3, -4 };
	const long forth[] = { 0, 1, 2, 3, 4 };
	const unsigned long addr = MO_VMA_START + 50 * PAGE_SIZE;
	struct migrate_row row;

	row = mo_row(test, addr, &below);
	row.nr = 2;
	mo_expect_piece(test, &row, 0, 2, 0);
	row = mo_row(test, addr, &back);
	row.nr = 1;
	mo_expect_piece(test, &row, 0, 1, 0);
	row.nr = 2;
	mo_expect_piece(test, &row, 0, 1, 0);
	mo_expect_piece(test, &row, 1, 1, -1);
	row = mo_row(test, addr, &forth);
	row.nr = 3;
	mo_expect_piece(test, &row, 0, 3, 0);
}

/*
 * A PROT_NONE entry needs a flush while another thread changes page tables.
 * The flush stays due if that thread ends before it.
 */
static void mo_test_cleared(struct kunit *test)
{
	const pte_t hint = pfn_pte(1, PAGE_NONE), present = pfn_pte(2, PAGE_SHARED);
	struct migrate_cleared cleared = {};
	struct mm_struct *mm = mm_alloc();
	struct vm_area_struct vma = { .vm_mm = mm };

	KUNIT_ASSERT_NOT_NULL(test, mm);
	migrate_cleared_add(&cleared, mm, hint);
	KUNIT_EXPECT_EQ(test, cleared.flush, pte_accessible(mm, hint));

	inc_tlb_flush_pending(mm);
	migrate_cleared_add(&cleared, mm, hint);
	KUNIT_EXPECT_TRUE(test, cleared.flush);
	KUNIT_EXPECT_FALSE(test, cleared.dirty);
	migrate_cleared_add(&cleared, mm, pte_mkdirty(present));
	dec_tlb_flush_pending(mm);
	KUNIT_EXPECT_TRUE(test, cleared.flush);
	KUNIT_EXPECT_TRUE(test, cleared.dirty);

	/*
	 * migrate_flush_ptes() does not check again whether the flush is due.
	 */
	cpumask_copy(mm_cpumask(mm), cpu_online_mask);
	try_to_unmap_flush();
	if (IS_ENABLED(CONFIG_X86) && num_online_cpus() > 1) {
		KUNIT_EXPECT_TRUE(test, migrate_flush_ptes(&vma, PAGE_SIZE, 2, true,
							   TTU_BATCH_FLUSH,
							   false));
		KUNIT_EXPECT_TRUE(test, current->tlb_ubc.flush_required);
		KUNIT_EXPECT_TRUE(test, current->tlb_ubc.writable);
		try_to_unmap_flush();
	}
	cpumask_clear(mm_cpumask(mm));
	/* No other CPU has the mm: defer only if the caller flushes often. */
	KUNIT_EXPECT_FALSE(test, migrate_flush_ptes(&vma, PAGE_SIZE, 2, true,
						    TTU_BATCH_FLUSH, false));
	KUNIT_EXPECT_FALSE(test, current->tlb_ubc.flush_required);
	KUNIT_EXPECT_FALSE(test, migrate_flush_ptes(&vma, PAGE_SIZE, 2, true, 0,
						    true));
	if (IS_ENABLED(CONFIG_X86) && IS_ENABLED(CONFIG_SMP)) {
		KUNIT_EXPECT_TRUE(test, migrate_flush_ptes(&vma, PAGE_SIZE, 2,
							   true, TTU_BATCH_FLUSH,
							   true));
		KUNIT_EXPECT_TRUE(test, current->tlb_ubc.flush_required);
		try_to_unmap_flush();
	}
	mmput(mm);
}

/*
 * The core maps a full run, and maps a run early if a task waits for a folio.
 */
static void mo_test_awaited(struct kunit *test)
{
	struct migrate_run *run;
	struct folio *folios;
	unsigned int i;

	run = kunit_kzalloc(test, sizeof(*run), GFP_KERNEL);
	folios = kunit_kcalloc(test, MIGRATE_RUN_MAX, sizeof(*folios), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, run);
	KUNIT_ASSERT_NOT_NULL(test, folios);
	run->src = kunit_kcalloc(test, MIGRATE_RUN_MAX, sizeof(*run->src),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, run->src);
	run->dst = kunit_kcalloc(test, MIGRATE_RUN_MAX, sizeof(*run->dst),
				 GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, run->dst);
	for (i = 0; i < MIGRATE_RUN_MAX; i++) {
		run->src[i] = &folios[i];
		/* Folio 0 has no flag in the first part of this test. */
		run->dst[i] = &folios[0];
	}

	for (run->nr = 1; run->nr < MIGRATE_RUN_MAX; run->nr++)
		KUNIT_EXPECT_FALSE(test, migrate_run_is_due_to_map(run));
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));

	/* The thread waits until at most seven more folios are copied. */
	KUNIT_EXPECT_LE(test, MIGRATE_RUN_LOOK, 8);
	__set_bit(PG_waiters, folio_flags(&folios[1], 0));
	run->nr = MIGRATE_RUN_LOOK;
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));
	run->nr = 2 * MIGRATE_RUN_LOOK;
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));

	/* Only page cache has a destination that another thread can find. */
	__clear_bit(PG_waiters, folio_flags(&folios[1], 0));
	KUNIT_EXPECT_FALSE(test, migrate_run_is_due_to_map(run));
	run->dst[1] = &folios[2 * MIGRATE_RUN_LOOK];
	__set_bit(PG_waiters, folio_flags(run->dst[1], 0));
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));
	run->anon_vma = (void *)run;
	KUNIT_EXPECT_FALSE(test, migrate_run_is_due_to_map(run));

	/* Folios of 64K: no other folio is copied while a thread waits. */
	run->order = 4;
	for (run->nr = 1; run->nr < MIGRATE_RUN_PAGES >> 4; run->nr++)
		KUNIT_EXPECT_FALSE(test, migrate_run_is_due_to_map(run));
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));
	__set_bit(PG_waiters, folio_flags(&folios[0], 0));
	run->nr = 1;
	KUNIT_EXPECT_TRUE(test, migrate_run_is_due_to_map(run));
}

static unsigned int mo_nr_allocated, mo_nr_given_up;

static struct folio *mo_alloc_folio(struct folio *src, unsigned long private)
{
	mo_nr_allocated++;
	return folio_alloc(GFP_KERNEL, 0);
}

static void mo_put_folio(struct folio *dst, unsigned long private)
{
	mo_nr_given_up++;
	folio_put(dst);
}

/* Gather a run, and give it up.  Returns the number of its folios. */
static unsigned int mo_gather(struct migrate_run *run, struct list_head *from)
{
	unsigned int i, nr;

	mo_nr_allocated = 0;
	mo_nr_given_up = 0;
	/* As migrate_run_is_due() finds it. */
	run->kind = MIGRATE_RUN_EXCLUSIVE;
	migrate_run_gather(run, from, list_first_entry(from, struct folio, lru),
			   UINT_MAX, mo_alloc_folio, mo_put_folio, 0);
	nr = run->nr;
	for (i = 0; i < nr; i++)
		migrate_run_give_up(run, i, mo_put_folio, 0);
	run->nr = 0;
	return nr;
}

/* The first run of a list, or after a failed run, has at most one folio. */
static void mo_test_probe(struct kunit *test)
{
	struct migrate_run *run;
	struct folio *folios;
	unsigned int i;
	LIST_HEAD(from);

	run = kunit_kzalloc(test, sizeof(*run), GFP_KERNEL);
	folios = kunit_kcalloc(test, MIGRATE_RUN_MAX, sizeof(*folios), GFP_KERNEL);
	KUNIT_ASSERT_NOT_NULL(test, run);
	KUNIT_ASSERT_NOT_NULL(test, folios);
	for (i = 0; i < MIGRATE_RUN_MAX; i++) {
		folios[i].mapping = (void *)FOLIO_MAPPING_ANON;
		__set_bit(PG_anon_exclusive, folio_flags(&folios[i], 0));
		atomic_set(&folios[i]._mapcount, 0);
		folio_set_count(&folios[i], 2);
		list_add_tail(&folios[i].lru, &from);
	}

	migrate_run_init(run, &from, MIGRATE_ASYNC, MR_SYSCALL);
	KUNIT_EXPECT_EQ(test, mo_gather(run, &from), 1);
	KUNIT_EXPECT_EQ(test, mo_nr_allocated, 1);
	KUNIT_EXPECT_EQ(test, mo_nr_given_up, 1);

	migrate_run_trust(run);
	KUNIT_EXPECT_EQ(test, mo_gather(run, &from), MIGRATE_RUN_MAX);
	KUNIT_EXPECT_EQ(test, mo_nr_allocated, MIGRATE_RUN_MAX);
	KUNIT_EXPECT_EQ(test, mo_nr_given_up, MIGRATE_RUN_MAX);

	migrate_run_note_failed(run);
	KUNIT_EXPECT_EQ(test, mo_gather(run, &from), 1);
	KUNIT_EXPECT_EQ(test, mo_nr_allocated, 1);
	migrate_run_exit(run);
}

static void mo_expect_kind(struct kunit *test, struct folio *folio, int mapcount,
			   int refs, enum migrate_run_kind kind)
{
	atomic_set(&folio->_mapcount, mapcount - 1);
	folio_set_count(folio, refs);
	KUNIT_EXPECT_EQ(test, migrate_run_kind(folio), kind);
}

/* A reference that nothing accounts for keeps a folio out of runs. */
static void mo_test_kinds(struct kunit *test)
{
	struct folio *folio = kunit_kzalloc(test, sizeof(*folio), GFP_KERNEL);
	static struct address_space mapping;
	unsigned long *flags;

	KUNIT_ASSERT_NOT_NULL(test, folio);
	flags = folio_flags(folio, 0);
	mo_expect_kind(test, folio, 0, 1, MIGRATE_RUN_NONE);

	folio->mapping = (void *)FOLIO_MAPPING_ANON;
	mo_expect_kind(test, folio, 1, 2, MIGRATE_RUN_SHARED);
	mo_expect_kind(test, folio, 16, 17, MIGRATE_RUN_SHARED);
	mo_expect_kind(test, folio, 16, 18, MIGRATE_RUN_NONE);
	__set_bit(PG_anon_exclusive, flags);
	mo_expect_kind(test, folio, 1, 2, MIGRATE_RUN_EXCLUSIVE);
	mo_expect_kind(test, folio, 1, 3, MIGRATE_RUN_NONE);
	__set_bit(PG_mlocked, flags);
	mo_expect_kind(test, folio, 1, 2, MIGRATE_RUN_NONE);
	__clear_bit(PG_mlocked, flags);
	folio->mapping = (void *)FOLIO_MAPPING_FLAGS;
	mo_expect_kind(test, folio, 1, 2, MIGRATE_RUN_NONE);

	/* The same bit is PG_mappedtodisk here. */
	folio->mapping = &mapping;
	mo_expect_kind(test, folio, 0, 2, MIGRATE_RUN_FILE);
	mo_expect_kind(test, folio, 16, 18, MIGRATE_RUN_FILE);
	mo_expect_kind(test, folio, 16, 19, MIGRATE_RUN_NONE);
	__set_bit(PG_private, flags);
	mo_expect_kind(test, folio, 0, 3, MIGRATE_RUN_NONE);
	mo_expect_kind(test, folio, 0, 2, MIGRATE_RUN_NONE);
}

/* Only folios of four pages to 512 KiB, which nobody else uses, go in runs. */
static void mo_test_large_kinds(struct kunit *test)
{
	static const struct { unsigned int order; bool runs; } sizes[] = {
		{ 1, false }, { 2, true }, { ilog2(MIGRATE_RUN_PAGES), true },
		{ ilog2(MIGRATE_RUN_PAGES) + 1, false },
	};
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(sizes); i++) {
		struct folio *folio = folio_alloc(GFP_KERNEL, sizes[i].order);
		enum migrate_run_kind kind = sizes[i].runs ?
			MIGRATE_RUN_LARGE : MIGRATE_RUN_NONE;
		int nr_pages = 1 << sizes[i].order;

		KUNIT_ASSERT_NOT_NULL(test, folio);
		folio_set_large_rmappable(folio);
		folio->mapping = (void *)FOLIO_MAPPING_ANON;
		folio_set_count(folio, nr_pages + 1);
		KUNIT_EXPECT_EQ(test, migrate_run_kind(folio), MIGRATE_RUN_NONE);
		__set_bit(PG_anon_exclusive, folio_flags(folio, 0));
		KUNIT_EXPECT_EQ(test, migrate_run_kind(folio), kind);
		folio_set_count(folio, nr_pages + 2);
		KUNIT_EXPECT_EQ(test, migrate_run_kind(folio), MIGRATE_RUN_NONE);
		folio_set_count(folio, 1);
		__clear_bit(PG_anon_exclusive, folio_flags(folio, 0));
		folio->mapping = NULL;
		folio_put(folio);
	}
}

/* Entries of neighbours have the same distance, whatever their bits are. */
static void mo_test_steps(struct kunit *test)
{
	static const unsigned long pfns[] = {
		1, 0xff, 0xffff, 0x7fffff, 0xffffffff, BIT(PFN_SECTION_SHIFT) - 1,
	};
	unsigned int i, bits;

	for (i = 0; i < ARRAY_SIZE(pfns); i++) {
		for (bits = 0; bits < 8; bits++) {
			pte_t old = pfn_pte(pfns[i], PAGE_NONE), pte, next;
			softleaf_t entry;

			if (bits & 1)
				old = pte_mksoft_dirty(old);
			entry = migrate_pte_entry(pfns[i], old, bits & 2);
			if (bits & 4)
				entry = make_migration_entry_dirty(entry);
			pte = migrate_pte_of_entry(entry, old);
			next = migrate_pte_next(pte, migrate_pte_step(entry));
			entry.val++;
			pte = migrate_pte_of_entry(entry, old);
			KUNIT_EXPECT_TRUE(test, pte_same(next, pte));
			entry = softleaf_from_pte(next);
			KUNIT_EXPECT_EQ(test, pfns[i] + 1, softleaf_to_pfn(entry));
		}
	}
}

static struct kunit_case migrate_run_test_cases[] = {
	KUNIT_CASE(mo_test_row_pieces),
	KUNIT_CASE(mo_test_row_cut),
	KUNIT_CASE(mo_test_cleared),
	KUNIT_CASE(mo_test_awaited),
	KUNIT_CASE(mo_test_probe),
	KUNIT_CASE(mo_test_kinds),
	KUNIT_CASE(mo_test_large_kinds),
	KUNIT_CASE(mo_test_steps),
	KUNIT_CASE(mo_test_row_order),
	KUNIT_CASE(mo_test_row_span),
	KUNIT_CASE(mo_test_row_bounds),
	{}
};

static struct kunit_suite migrate_run_test_suite = {
	.name = "migrate_run",
	.test_cases = migrate_run_test_cases,
};

kunit_test_suite(migrate_run_test_suite);
