// SPDX-License-Identifier: GPL-2.0-only
/*
 * The routines of mm/migrate_offload/copy.c in user space: "pages",
 * "nontemporal" and "direct".  The kernel does not have the others: "string"
 * copies a folio with one instruction, and "wide" bypasses the caches with
 * vector registers.
 */
#include <signal.h>
#include <string.h>
#include <ucontext.h>

#include "routines.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>

/* As the kernel's table of exceptions. */
#define MIGRATE_COPY_EXTABLE(from, to) \
	".pushsection copy_fixups, \"a\"\n"		\
	"	.quad " #from ", " #to "\n"		\
	".popsection\n"
/* C11 has no "asm". */
#define asm __asm__
#include "../../linux/tree/mm/migrate_offload/copy_asm.h"

#define LINE_BYTES 64

/* CPUID leaf 7: two bits of EBX, and one of ECX. */
#define ERMS (1ULL << 9)
#define CLFLUSHOPT (1ULL << 23)
#define MOVDIR64B (1ULL << (32 + 28))

static bool cpu_has(uint64_t bit)
{
	unsigned int a, b, c, d;

	return __get_cpuid_count(7, 0, &a, &b, &c, &d) &&
		(b | (uint64_t)c << 32) & bit;
}

static bool always(void)
{
	return true;
}

static bool has_erms(void)
{
	return cpu_has(ERMS);
}

static bool has_movdir64b(void)
{
	return cpu_has(MOVDIR64B);
}

static bool has_avx2(void)
{
	return __builtin_cpu_supports("avx2");
}

static void copy_string(char *dst, const char *src, size_t bytes)
{
	__asm__ volatile("rep movsb"
			 : "+D" (dst), "+S" (src), "+c" (bytes) : : "memory");
}

static void copy_words(char *dst, const char *src, size_t bytes)
{
	size_t words = bytes / 8;

	__asm__ volatile("rep movsq"
			 : "+D" (dst), "+S" (src), "+c" (words) : : "memory");
}

static void copy_pages(char *dst, const char *src, size_t bytes)
{
	static int erms = -1;
	size_t page = page_bytes();

	if (erms < 0)
		erms = has_erms();
	for (size_t at = 0; at < bytes; at += page) {
		if (erms)
			copy_string(dst + at, src + at, page);
		else
			copy_words(dst + at, src + at, page);
	}
}

static void copy_nontemporal(char *dst, const char *src, size_t bytes)
{
	migrate_copy_nontemporal(dst, src, bytes);
}

static void copy_direct(char *dst, const char *src, size_t bytes)
{
	migrate_copy_direct(dst, src, bytes);
}

struct fixup {
	uint64_t from, to;
};

extern const struct fixup __start_copy_fixups[], __stop_copy_fixups[];

static void fix_up(int number, siginfo_t *info, void *context)
{
	greg_t *ip = &((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
	const struct fixup *f = __start_copy_fixups;

	(void)info;
	for (; f < __stop_copy_fixups; f++) {
		if (f->from == (uint64_t)*ip) {
			*ip = (greg_t)f->to;
			return;
		}
	}
	/* Another fault: end as without this handler. */
	signal(number, SIG_DFL);
}

unsigned long copy_until_signal(unsigned int routine, char *dst,
				const char *src, size_t bytes)
{
	struct sigaction how = { .sa_sigaction = fix_up,
				 .sa_flags = SA_SIGINFO }, before;
	unsigned long left;

	sigaction(SIGSEGV, &how, &before);
	left = routine == DIRECT ? migrate_copy_direct(dst, src, bytes) :
		migrate_copy_nontemporal(dst, src, bytes);
	sigaction(SIGSEGV, &before, NULL);
	return left;
}

__attribute__((target("avx2")))
static void copy_wide(char *dst, const char *src, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += 64) {
		const __m256i *from = (const __m256i *)(src + at);
		__m256i *to = (__m256i *)(dst + at);
		__m256i a = _mm256_load_si256(from);
		__m256i b = _mm256_load_si256(from + 1);

		_mm256_stream_si256(to, a);
		_mm256_stream_si256(to + 1, b);
	}
	_mm_sfence();
}

__attribute__((target("clflushopt")))
static void flush_quickly(const char *start, size_t bytes)
{
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		_mm_clflushopt((void *)(uintptr_t)(start + at));
	_mm_sfence();
}

/* Write back and drop all lines of a memory from the caches of all CPUs. */
void caches_flush(const char *start, size_t bytes)
{
	if (cpu_has(CLFLUSHOPT)) {
		flush_quickly(start, bytes);
		return;
	}
	for (size_t at = 0; at < bytes; at += LINE_BYTES)
		_mm_clflush(start + at);
	_mm_mfence();
}

const struct routine routines[NR_ROUTINES] = {
	[PAGES] = { copy_pages, always },
	[NONTEMPORAL] = { copy_nontemporal, always },
	[DIRECT] = { copy_direct, has_movdir64b },
	[STRING] = { copy_string, has_erms },
	[WIDE] = { copy_wide, has_avx2 },
};
#else
/* The kernel has one routine there. */
static bool never(void)
{
	return false;
}

static void copy_any(char *dst, const char *src, size_t bytes)
{
	memcpy(dst, src, bytes);
}

void caches_flush(const char *start, size_t bytes)
{
	(void)start;
	(void)bytes;
}

const struct routine routines[NR_ROUTINES] = {
	[PAGES] = { copy_any, never },
	[NONTEMPORAL] = { copy_any, never },
	[DIRECT] = { copy_any, never },
	[STRING] = { copy_any, never },
	[WIDE] = { copy_any, never },
};

unsigned long copy_until_signal(unsigned int routine, char *dst,
				const char *src, size_t bytes)
{
	(void)routine;
	(void)dst;
	(void)src;
	return bytes;
}
#endif

const char *const routine_names[NR_ROUTINES + 1] = {
	"pages", "nontemporal", "direct", "string", "wide", NULL
};
