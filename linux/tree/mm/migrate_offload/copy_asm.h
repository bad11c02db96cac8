/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Copy loops whose stores bypass the caches.  The kernel and the programs of
 * pageferry's bench/ include this file, so that they measure what the kernel
 * runs.  The loops use no vector registers, whose state the kernel would have to
 * save.
 *
 * The includer defines MIGRATE_COPY_EXTABLE(from, to): an exception of the
 * instruction at label @from continues at label @to.
 */
#ifndef _MM_MIGRATE_OFFLOAD_COPY_ASM_H
#define _MM_MIGRATE_OFFLOAD_COPY_ASM_H

#define MIGRATE_COPY_LOAD(label, at, reg)				\
	#label ":	movq " #at "(%[src]), %[" #reg "]\n"		\
	MIGRATE_COPY_EXTABLE(label##b, 2f)

/* A store fails if the kernel has unmapped a poisoned page. */
#define MIGRATE_COPY_STORE(label, at, reg)				\
	#label ":	movnti %[" #reg "], " #at "(%[dst])\n"		\
	MIGRATE_COPY_EXTABLE(label##b, 2f)

/*
 * Copy @bytes, a multiple of 64 and not 0.  Both addresses are multiples of 64.
 * Returns how many bytes an exception has left: a multiple of 64, which begins
 * with the line that failed.
 */
static inline unsigned long
migrate_copy_nontemporal(void *dst, const void *src, unsigned long bytes)
{
	unsigned long a, b, c, d;

	asm volatile("1:\n"
		     MIGRATE_COPY_LOAD(11, 0, a)
		     MIGRATE_COPY_LOAD(12, 8, b)
		     MIGRATE_COPY_LOAD(13, 16, c)
		     MIGRATE_COPY_LOAD(14, 24, d)
		     MIGRATE_COPY_STORE(15, 0, a)
		     MIGRATE_COPY_STORE(16, 8, b)
		     MIGRATE_COPY_STORE(17, 16, c)
		     MIGRATE_COPY_STORE(18, 24, d)
		     MIGRATE_COPY_LOAD(21, 32, a)
		     MIGRATE_COPY_LOAD(22, 40, b)
		     MIGRATE_COPY_LOAD(23, 48, c)
		     MIGRATE_COPY_LOAD(24, 56, d)
		     MIGRATE_COPY_STORE(25, 32, a)
		     MIGRATE_COPY_STORE(26, 40, b)
		     MIGRATE_COPY_STORE(27, 48, c)
		     MIGRATE_COPY_STORE(28, 56, d)
		     "	addq $64, %[src]\n"
		     "	addq $64, %[dst]\n"
		     "	subq $64, %[bytes]\n"
		     "	jnz 1b\n"
		     /* These stores have no order without a fence. */
		     "2:	sfence\n"
		     : [dst] "+r" (dst), [src] "+r" (src), [bytes] "+r" (bytes),
		       [a] "=&r" (a), [b] "=&r" (b), [c] "=&r" (c),
		       [d] "=&r" (d)
		     : : "memory", "cc");
	return bytes;
}

/*
 * The same, a line with each instruction: MOVDIR64B (%rdx), %rax, whose name old
 * assemblers do not know.  Some CPUs lack it.
 */
static inline unsigned long
migrate_copy_direct(void *dst, const void *src, unsigned long bytes)
{
	asm volatile("1:	.byte 0x66, 0x0f, 0x38, 0xf8, 0x02\n"
		     "	addq $64, %[src]\n"
		     "	addq $64, %[dst]\n"
		     "	subq $64, %[bytes]\n"
		     "	jnz 1b\n"
		     "2:	sfence\n"
		     MIGRATE_COPY_EXTABLE(1b, 2b)
		     : [dst] "+a" (dst), [src] "+d" (src), [bytes] "+r" (bytes)
		     : : "memory", "cc");
	return bytes;
}

#endif /* _MM_MIGRATE_OFFLOAD_COPY_ASM_H */
