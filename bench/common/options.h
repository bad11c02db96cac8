/* SPDX-License-Identifier: GPL-2.0-only */
/* options.c: the options of a program, as a table. */
#ifndef PF_BENCH_OPTIONS_H
#define PF_BENCH_OPTIONS_H

#include "bench.h"

struct option_row {
	const char *name;
	const char *value;	/* what --help calls it; NULL: it has none */
	const char *about;	/* for --help; may have several lines */
	void (*set)(const struct option_row *row, const char *text);
	void *to;
	uint64_t min, max;
	const char *const *words;	/* that it may be, ending with NULL */
};

struct program {
	const char *name, *about, *example;
	const struct option_row *options;	/* ending with one without a name */
};

/* Words of a list, as places in what the list is of. */
struct word_list {
	unsigned int at[8];
	size_t nr;
};

bool has_word(const struct word_list *list, unsigned int at);
/* Ends the program unless all arguments are options of it and make sense. */
void options_parse(const struct program *p, int argc, char **argv);
/* Ends the program: what --OPTION was given is no good. */
_Noreturn void option_invalid(const char *option, const char *value);

/* A row may set a number from @min to @max ... */
void set_int(const struct option_row *row, const char *text);
void set_uint(const struct option_row *row, const char *text);
void set_u64(const struct option_row *row, const char *text);
/* ... or bytes: up to @max, and unless @min is 0 a multiple of it ... */
void set_bytes(const struct option_row *row, const char *text);
/* ... or text: one of @words if there are any, a number if there is a @max ... */
void set_text(const struct option_row *row, const char *text);
/* ... or the place of a word, from @min on; a list of them; true; a module. */
void set_word(const struct option_row *row, const char *text);
void set_words(const struct option_row *row, const char *text);
void set_true(const struct option_row *row, const char *text);
void set_module(const struct option_row *row, const char *text);

#define MAX_ROUNDS 10000
#define ROW_ROUNDS(to)							       \
	{ "rounds", "N", "that count; one more comes first (default 5)",      \
	  set_uint, to, 1, MAX_ROUNDS, NULL }
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
