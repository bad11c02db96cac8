// SPDX-License-Identifier: GPL-2.0-only
#include "bench.h"

/* The finaliser of splitmix64: each input bit changes half of the output. */
static uint64_t mix64(uint64_t x)
{
	x ^= x >> 30;
	x *= 0xbf58476d1ce4e5b9ULL;
	x ^= x >> 27;
	x *= 0x94d049bb133111ebULL;
	return x ^ (x >> 31);
}

/* The generator of "Numerical Recipes"; its high bits are the good ones. */
uint64_t random_step(uint64_t seed)
{
	return seed * 6364136223846793005ULL + 1442695040888963407ULL;
}

struct pattern {
	uint64_t word;
	uint64_t step;
};

/*
 * Words form an arithmetic progression, whose start and step depend on page and
 * round.  So content of another page, place or round is wrong.  A step costs
 * one addition, which matters where each instruction is emulated.
 */
static struct pattern pattern_start(uint64_t seed, uint64_t index)
{
	uint64_t key = mix64(seed * 0x9e3779b97f4a7c15ULL + 1) + index;

	return (struct pattern){
		.word = mix64(key),
		.step = mix64(~key) | 1,
	};
}

void pattern_fill(void *buf, size_t bytes, uint64_t seed, uint64_t index)
{
	struct pattern p = pattern_start(seed, index);
	uint64_t *words = buf;

	for (size_t i = 0; i < bytes / sizeof(*words); i++) {
		words[i] = p.word;
		p.word += p.step;
	}
}

/* Returns the offset of the first wrong byte, or @bytes if there is none. */
size_t pattern_verify(const void *buf, size_t bytes, uint64_t seed,
		      uint64_t index)
{
	struct pattern p = pattern_start(seed, index);
	const uint64_t *words = buf;

	for (size_t i = 0; i < bytes / sizeof(*words); i++) {
		const unsigned char *have = (const unsigned char *)&words[i];
		const unsigned char *want = (const unsigned char *)&p.word;

		if (words[i] != p.word) {
			size_t byte = 0;

			while (have[byte] == want[byte])
				byte++;
			return i * sizeof(*words) + byte;
		}
		p.word += p.step;
	}
	return bytes;
}
