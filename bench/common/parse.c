// SPDX-License-Identifier: GPL-2.0-only
/*
 * Parse numbers, sizes and lists.  This file uses no other of this directory.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Parse digits only. *end points behind them. */
static bool parse_digits(const char *text, uint64_t *value, const char **end)
{
	char *stop;

	/* strtoull() would take a sign and leading blanks. */
	if (*text < '0' || *text > '9')
		return false;
	errno = 0;
	*value = strtoull(text, &stop, 10);
	*end = stop;
	return !errno;
}

bool parse_u64(const char *text, uint64_t *value)
{
	const char *end;

	return parse_digits(text, value, &end) && !*end;
}

/*
 * Parse "4096", "4K" or "4KiB", with binary units only, as in all of pageferry.
 */
bool parse_bytes(const char *text, uint64_t *bytes)
{
	static const char units[] = "KMG";
	const char *end, *unit;
	unsigned int shift;

	if (!parse_digits(text, bytes, &end))
		return false;
	if (!*end)
		return true;
	unit = strchr(units, *end & ~0x20);
	if (!unit || !*unit || (end[1] && strcmp(end + 1, "iB")))
		return false;
	shift = 10 * (unsigned int)(unit - units + 1);
	if (*bytes > UINT64_MAX >> shift)
		return false;
	*bytes <<= shift;
	return true;
}

/*
 * Split "a,b,c".  Returns the number of words, or 0 if a word is empty or too
 * long, or if there are more than @max.
 */
size_t parse_list(const char *text, char (*words)[64], size_t max)
{
	size_t nr = 0;

	for (;;) {
		size_t len = strcspn(text, ",");

		if (!len || len >= sizeof(words[0]) || nr == max)
			return 0;
		memcpy(words[nr], text, len);
		words[nr++][len] = '\0';
		if (!text[len])
			return nr;
		text += len + 1;
	}
}

/* Returns the index of a word in @words, which ends with NULL, or -1. */
int parse_word(const char *text, const char *const *words)
{
	for (int i = 0; words[i]; i++)
		if (!strcmp(text, words[i]))
			return i;
	return -1;
}

struct decimal decimal(uint64_t value)
{
	struct decimal d;

	snprintf(d.text, sizeof(d.text), "%llu", (unsigned long long)value);
	return d;
}
