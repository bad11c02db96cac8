/* SPDX-License-Identifier: GPL-2.0-only */
/* The kernel's helpers that mm/migrate_offload/plan.c uses, for user space. */
#ifndef _TESTS_UNIT_PLAN_KERNEL_H
#define _TESTS_UNIT_PLAN_KERNEL_H

#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

typedef uint64_t u64;

#define U64_MAX UINT64_MAX
#define READ_ONCE(x) (x)
#define WRITE_ONCE(x, value) ((x) = (value))
#define DIV_ROUND_UP(n, d) (((n) + (d) - 1) / (d))

#define min(a, b)						\
({								\
	__typeof__((a) + 0) _a = (a);				\
	__typeof__((b) + 0) _b = (b);				\
								\
	_a < _b ? _a : _b;					\
})
#define max(a, b)						\
({								\
	__typeof__((a) + 0) _a = (a);				\
	__typeof__((b) + 0) _b = (b);				\
								\
	_a > _b ? _a : _b;					\
})
#define min_not_zero(a, b) ((a) && (b) ? min(a, b) : (a) ?: (b))
#define clamp(value, low, high)					\
({								\
	__typeof__((value) + 0) _value = (value);		\
	__typeof__((low) + 0) _low = (low);			\
	__typeof__((high) + 0) _high = (high);			\
								\
	_value < _low ? _low : _value > _high ? _high : _value;	\
})
#define clamp_t(type, value, low, high)				\
	clamp((type)(value), (type)(low), (type)(high))

static inline u64 div_u64(u64 dividend, uint32_t divisor)
{
	return dividend / divisor;
}

static inline u64 div64_u64(u64 dividend, u64 divisor)
{
	return dividend / divisor;
}

static inline u64 mul_u64_u64_div_u64(u64 a, u64 mul, u64 div)
{
	return (unsigned __int128)a * mul / div;
}

#endif /* _TESTS_UNIT_PLAN_KERNEL_H */
