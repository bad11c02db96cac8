// SPDX-License-Identifier: GPL-2.0-only
/* Parse a case of bench latency from an option. */
#include <string.h>

#include "latency.h"

#define MAX_WORDS 16

static bool number_ok(const char *text, uint64_t min, uint64_t max,
		      uint64_t *value)
{
	return parse_u64(text, value) && *value >= min && *value <= max;
}

static bool parse_touch(const char *text, enum touch_mode *mode)
{
	int at = parse_word(text, touch_names);

	*mode = at < 0 ? TOUCH_NONE : (enum touch_mode)at;
	return at >= 0;
}

static bool parse_bool(const char *text, bool *value)
{
	*value = !strcmp(text, "true");
	return *value || !strcmp(text, "false");
}

static bool parse_slow(char *text, struct test_case *t)
{
	char *colon = strchr(text, ':');

	if (!colon)
		return false;
	*colon = '\0';
	return number_ok(text, 1, 99, &t->slow_percent) &&
	       number_ok(colon + 1, 2, 1000, &t->slow_factor);
}

static bool parse_limit(const char *text, uint64_t *us)
{
	if (strcmp(text, "default"))
		return number_ok(text, 0, 1000000000, us);
	*us = LIMIT_DEFAULT;
	return true;
}

/* Set one NAME=VALUE of a case. */
static bool parse_pair(struct test_case *t, const char *name, char *value)
{
	uint64_t bytes;

	if (!strcmp(name, "engine"))
		return variant_parse(value, &t->variant);
	if (!strcmp(name, "folio")) {
		if (!parse_bytes(value, &bytes) || bytes < page_bytes() ||
		    bytes > PMD_BYTES || (bytes & (bytes - 1)))
			return false;
		t->folio_bytes = bytes;
		return true;
	}
	if (!strcmp(name, "total"))
		return parse_bytes(value, &t->total_bytes);
	if (!strcmp(name, "cap"))
		return number_ok(value, 1, 262144, &t->cap_pages);
	if (!strcmp(name, "windows"))
		return number_ok(value, 1, 16, &t->max_windows);
	if (!strcmp(name, "streaming"))
		return parse_bool(value, &t->streaming);
	if (!strcmp(name, "limit"))
		return parse_limit(value, &t->limit_us);
	if (!strcmp(name, "touch"))
		return parse_touch(value, &t->touch);
	if (!strcmp(name, "slow"))
		return parse_slow(value, t);
	if (!strcmp(name, "share")) {
		t->has_share = true;
		return parse_bool(value, &t->share);
	}
	if (!strcmp(name, "mbps")) {
		t->has_rate = true;
		return number_ok(value, 0, 1000000, &t->mbps);
	}
	return false;
}

/* "engine=dcbm:channels=16,cap=8192".  Returns false if a part is invalid. */
bool case_parse(const char *text, struct test_case *t)
{
	char words[MAX_WORDS][64];
	size_t nr = parse_list(text, words, MAX_WORDS);

	*t = (struct test_case){
		.variant = { .engine = "stock", .threads = 1 },
		.folio_bytes = PMD_BYTES,
		.total_bytes = 64UL << 20,
		.cap_pages = 512,
		.max_windows = 2,
		.limit_us = LIMIT_DEFAULT,
		.streaming = true,
	};
	if (!nr)
		return false;
	for (size_t i = 0; i < nr; i++) {
		char *value = strchr(words[i], '=');

		if (value)
			*value++ = '\0';
		if (!value || !parse_pair(t, words[i], value))
			return false;
	}
	/*
	 * The total is a whole number of folios.  A change of rate needs a
	 * rate.
	 */
	return t->total_bytes && t->total_bytes % t->folio_bytes == 0 &&
	       t->total_bytes <= 1ULL << 44 && (!t->slow_factor || t->mbps);
}
