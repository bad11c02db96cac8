/* SPDX-License-Identifier: GPL-2.0-only */
/* options.c: the options of a program, as a table. */
#ifndef PF_BENCH_OPTIONS_H
#define PF_BENCH_OPTIONS_H

#include "bench.h"

struct option_row {
	const char *name;
	const char *value;	/* its argument in --help, NULL: none */
	const char *about;	/* text in --help, maybe several lines */
	void (*set)(const struct option_row *row, const char *text);
	void *to;
	uint64_t min, max;
	const char *const *words;	/* allowed words, ending with NULL */
};

struct program {
	const char *name, *about, *example;
	const struct option_row *options;	/* the last has no name */
};

#define MAX_WORDS 16

/* Words of a list, as indices into the list of all words. */
struct word_list {
	unsigned int at[MAX_WORDS];
	size_t nr;
};

bool has_word(const struct word_list *list, unsigned int at);
/* End the program unless all arguments are valid options. */
void options_parse(const struct program *p, int argc, char **argv);
/* End the program with an error about the argument of --OPTION. */
_Noreturn void option_invalid(const char *option, const char *value);

/* Setters of rows.  A number from @min to @max. */
void set_int(const struct option_row *row, const char *text);
void set_u64(const struct option_row *row, const char *text);
/* Bytes up to @max, and unless @min is 0 a multiple of @min. */
void set_bytes(const struct option_row *row, const char *text);
/* Text: one of @words if set, a number if @max is set. */
void set_text(const struct option_row *row, const char *text);
/* The index of a word, from @min on; a list of words; true; a module. */
void set_word(const struct option_row *row, const char *text);
void set_words(const struct option_row *row, const char *text);
void set_true(const struct option_row *row, const char *text);
void set_module(const struct option_row *row, const char *text);

#define MAX_ROUNDS 10000
#define ROW_ROUNDS(to)							       \
	{ "rounds", "N", "that count; one more comes first (default 5)",      \
	  set_u64, to, 1, MAX_ROUNDS, NULL }
#define ROW_CPU(to)							       \
	{ "cpu", "CPU", "where the caller runs (default: first of --from)",    \
	  set_int, to, 0, CPU_SETSIZE - 1, NULL }
#define ROW_MODULE(to)							       \
	{ "module", "FILE", "load this kernel module first; may be repeated;\n" \
	  "'FILE.ko NAME=VALUE' with parameters", set_module, to, 0, 0, NULL }
#define ROW_SABOTAGE(to, what)						       \
	{ "sabotage", "WORD", "spoil one page before the check, which must\n"  \
	  "then fail (for tests): content" what, set_text, to, 0, 0,	       \
	  what[0] ? sabotages : sabotage_content }

extern const char *const sabotages[], *const sabotage_content[];

#endif /* PF_BENCH_OPTIONS_H */
