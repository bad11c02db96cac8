// SPDX-License-Identifier: GPL-2.0-only
/* The options of a program as a table, for parsing and for --help. */
#include <getopt.h>
#include <stdio.h>
#include <stdlib.h>

#include "options.h"

#define MAX_OPTIONS 32
#define ABOUT_COLUMN 26

const char *const sabotages[] = { "content", "node", NULL };
const char *const sabotage_content[] = { "content", NULL };

_Noreturn void option_invalid(const char *option, const char *value)
{
	bench_die(BENCH_USAGE, "--%s: '%s' is not valid (see --help)", option,
		  value);
}

static uint64_t number(const struct option_row *row, const char *text)
{
	uint64_t value;

	if (!parse_u64(text, &value) || value < row->min || value > row->max)
		option_invalid(row->name, text);
	return value;
}

void set_int(const struct option_row *row, const char *text)
{
	*(int *)row->to = (int)number(row, text);
}

void set_u64(const struct option_row *row, const char *text)
{
	*(uint64_t *)row->to = number(row, text);
}

void set_bytes(const struct option_row *row, const char *text)
{
	uint64_t bytes;

	if (!parse_bytes(text, &bytes) || bytes > row->max ||
	    (row->min && (!bytes || bytes % row->min)))
		option_invalid(row->name, text);
	*(uint64_t *)row->to = bytes;
}

void set_text(const struct option_row *row, const char *text)
{
	if (row->words && parse_word(text, row->words) < 0)
		option_invalid(row->name, text);
	if (row->max)
		number(row, text);
	*(const char **)row->to = text;
}

void set_word(const struct option_row *row, const char *text)
{
	int at = parse_word(text, row->words);

	if (at < (int)row->min)
		option_invalid(row->name, text);
	*(unsigned int *)row->to = (unsigned int)at;
}

void set_words(const struct option_row *row, const char *text)
{
	struct word_list *list = row->to;
	char words[ARRAY_SIZE(list->at)][64];

	list->nr = parse_list(text, words, ARRAY_SIZE(words));
	if (!list->nr)
		option_invalid(row->name, text);
	for (size_t i = 0; i < list->nr; i++) {
		int at = parse_word(words[i], row->words);

		if (at < 0)
			option_invalid(row->name, words[i]);
		list->at[i] = (unsigned int)at;
	}
}

bool has_word(const struct word_list *list, unsigned int at)
{
	for (size_t i = 0; i < list->nr; i++)
		if (list->at[i] == at)
			return true;
	return false;
}

void set_true(const struct option_row *row, const char *text)
{
	(void)text;
	*(bool *)row->to = true;
}

void set_module(const struct option_row *row, const char *text)
{
	struct modules *modules = row->to;

	if (modules->nr == ARRAY_SIZE(modules->names))
		bench_die(BENCH_USAGE, "too many --module");
	modules->names[modules->nr++] = text;
}

static void help_row(const struct option_row *row)
{
	int column = printf("  --%s %s", row->name, row->value ?: "");

	if (column >= ABOUT_COLUMN) {
		putchar('\n');
		column = 0;
	}
	printf("%*s", ABOUT_COLUMN - column, "");
	for (const char *c = row->about; *c; c++) {
		putchar(*c);
		if (*c == '\n')
			printf("%*s", ABOUT_COLUMN, "");
	}
	putchar('\n');
}

static _Noreturn void help(const struct program *p)
{
	printf("usage: %s [options]\n\n%s\n\n", p->name, p->about);
	for (const struct option_row *row = p->options; row->name; row++)
		help_row(row);
	printf("  --help\n\nexample: %s %s\n", p->name, p->example);
	exit(BENCH_OK);
}

void options_parse(const struct program *p, int argc, char **argv)
{
	struct option all[MAX_OPTIONS + 2] = { { 0 } };
	int nr = 0, c;

	/* An option is identified by its index, from 1. */
	for (; nr < MAX_OPTIONS && p->options[nr].name; nr++)
		all[nr] = (struct option){ p->options[nr].name,
					   p->options[nr].value ?
						   required_argument :
						   no_argument,
					   NULL, nr + 1 };
	all[nr] = (struct option){ "help", no_argument, NULL, nr + 1 };
	while ((c = getopt_long(argc, argv, "", all, NULL)) != -1) {
		/* getopt has printed an error with the option's name. */
		if (c == '?')
			exit(BENCH_USAGE);
		if (c == nr + 1)
			help(p);
		p->options[c - 1].set(&p->options[c - 1], optarg);
	}
	if (optind != argc)
		bench_die(BENCH_USAGE, "unexpected argument '%s'",
			  argv[optind]);
}
