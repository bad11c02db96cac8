// SPDX-License-Identifier: GPL-2.0-only
/* Histograms of times, both the kernel's and our own. */
#include <fcntl.h>
#include <string.h>
#include <unistd.h>

#include "latency.h"

#define SUB_BITS 3	/* 8 buckets for each octave */

/* The lower bound of the bucket of @ns: only the first four bits stay. */
uint64_t histogram_lower(uint64_t ns)
{
	unsigned int shift;

	if (ns < 1 << (SUB_BITS + 1))
		return ns;
	shift = 63 - (unsigned int)__builtin_clzll(ns) - SUB_BITS;
	return ns >> shift << shift;
}

/* The index of @lower, or where to insert it. */
static size_t find(const struct histogram *h, uint64_t lower)
{
	size_t low = 0, high = h->nr;

	while (low < high) {
		size_t middle = (low + high) / 2;

		if (h->lower[middle] < lower)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static bool add(struct histogram *h, uint64_t lower, uint64_t count)
{
	size_t i = find(h, lower);

	if (i < h->nr && h->lower[i] == lower) {
		h->count[i] += count;
		return true;
	}
	if (h->nr == HIST_BUCKETS)
		return false;
	memmove(&h->lower[i + 1], &h->lower[i],
		(h->nr - i) * sizeof(h->lower[0]));
	memmove(&h->count[i + 1], &h->count[i],
		(h->nr - i) * sizeof(h->count[0]));
	h->lower[i] = lower;
	h->count[i] = count;
	h->nr++;
	return true;
}

void histogram_add(struct histogram *h, uint64_t ns)
{
	add(h, histogram_lower(ns), 1);
}

/* Parse lines of "<lower bound> <count>", and reject all others. */
bool histogram_parse(const char *text, struct histogram *h)
{
	h->nr = 0;
	while (*text) {
		char line[64], *blank;
		size_t len = strcspn(text, "\n");
		uint64_t lower, count;

		if (len >= sizeof(line))
			return false;
		memcpy(line, text, len);
		line[len] = '\0';
		text += len + (text[len] == '\n');
		blank = strchr(line, ' ');
		if (!blank)
			return false;
		*blank = '\0';
		if (!parse_u64(line, &lower) || !parse_u64(blank + 1, &count) ||
		    !add(h, lower, count))
			return false;
	}
	return true;
}

/* Returns false only if the file does not exist. */
bool histogram_read(const char *path, struct histogram *h)
{
	char text[1 << 14];
	size_t len = 0;
	ssize_t got;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	while ((got = read(fd, text + len, sizeof(text) - 1 - len)) > 0)
		len += (size_t)got;
	close(fd);
	text[len] = '\0';
	if (got < 0 || !histogram_parse(text, h))
		bench_die(BENCH_FAILED, "%s is not a histogram", path);
	return true;
}

/* Subtract @before, and remove empty buckets. */
void histogram_subtract(struct histogram *h, const struct histogram *before)
{
	size_t nr = 0;

	for (size_t i = 0; i < h->nr; i++) {
		size_t was = find(before, h->lower[i]);
		uint64_t count = h->count[i];

		if (was < before->nr && before->lower[was] == h->lower[i])
			count -= before->count[was];
		if (!count)
			continue;
		h->lower[nr] = h->lower[i];
		h->count[nr++] = count;
	}
	h->nr = nr;
}

/* Print pairs: [lower, count, lower, count, ...] */
void json_histogram(const char *key, const struct histogram *h)
{
	uint64_t pairs[2 * HIST_BUCKETS];

	for (size_t i = 0; i < h->nr; i++) {
		pairs[2 * i] = h->lower[i];
		pairs[2 * i + 1] = h->count[i];
	}
	json_u64_array(key, pairs, 2 * h->nr);
}
