// SPDX-License-Identifier: GPL-2.0-only
/* Numbers, sizes and lists as text.  Nothing else in this directory is used here. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

/* Parses the digits only; *end is what follows them. */
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

/* "4096", "4K", "4KiB": binary units only, as everywhere in pageferry. */
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
 * Splits "a,b,c".  Returns the number of words, or 0 when one is empty, too
 * long, or there are more than @max.
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

/* The index of a word among @words, which end with NULL; -1 if it is none of them. */
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
