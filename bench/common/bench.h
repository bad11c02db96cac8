/* SPDX-License-Identifier: GPL-2.0-only */
/*
 * Code that all benchmark programs share.
 *
 * Each program answers one question, and writes one JSON object per line to
 * stdout.  It reports an error in one line on stderr, and verifies the memory
 * that it measured.  This code needs no library but libc, so the programs link
 * statically and run in an initramfs.
 */
#ifndef PF_BENCH_H
#define PF_BENCH_H

#include <pthread.h>
#include <sched.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ARRAY_SIZE(a) (sizeof(a) / sizeof((a)[0]))

/* The exit codes of the pageferry tool, as far as a benchmark needs them. */
enum bench_exit {
	BENCH_OK = 0,		/* measured and verified */
	BENCH_FAILED = 1,	/* ran, but a page or a byte was wrong */
	BENCH_USAGE = 2,
	BENCH_LACKING = 3,	/* the kernel or machine lacks a feature */
};

/* report.c: talking to the reader */
_Noreturn void bench_die(enum bench_exit code, const char *fmt, ...)
	__attribute__((format(printf, 2, 3)));
uint64_t bench_now_ns(void);
void bench_sleep_ns(uint64_t ns);

void json_begin(const char *type);
void json_u64(const char *key, uint64_t value);
void json_str(const char *key, const char *value);
void json_bool(const char *key, bool value);
void json_null(const char *key);
void json_u64_or_null(const char *key, bool known, uint64_t value);
void json_u64_array(const char *key, const uint64_t *values, size_t nr);
void json_end(void);

/* parse.c: strict parsing, without guesses */
bool parse_u64(const char *text, uint64_t *value);
bool parse_bytes(const char *text, uint64_t *bytes);
size_t parse_list(const char *text, char (*words)[64], size_t max);
int parse_word(const char *text, const char *const *words);
/* A number as text, valid in the expression that creates it. */
struct decimal {
	char text[24];
} decimal(uint64_t value);

/* pattern.c: content that identifies its page and round, and random numbers */
uint64_t random_step(uint64_t seed);
void pattern_fill(void *buf, size_t bytes, uint64_t seed, uint64_t index);
size_t pattern_verify(const void *buf, size_t bytes, uint64_t seed,
		      uint64_t index);

/* files.c: one-value files, and settings that are restored */
bool file_read(const char *path, char *buf, size_t size);
bool file_write(const char *path, const char *value);
bool file_read_u64(const char *path, uint64_t *value);
void setting_value(const char *path, char *buf, size_t size);
bool setting_pin(const char *path, const char *value);
void setting_must_pin(const char *path, const char *value);
bool setting_keep(const char *path, const char *old);
void setting_report(const char *key, const char *path);
void setting_report_and_pin(const char *key, const char *path,
			    const char *value);
bool line_read_u64(const char *path, const char *name, uint64_t *value);
void settings_restore(void);
void settings_restore_after(void (*cleanup)(void));
void settings_restore_on_exit(void);
void settings_on_interrupt(void);
pid_t settings_fork(volatile pid_t *child);
/* settings_restore() kills this child first, as it uses memory.  0: none. */
extern volatile pid_t settings_child;
void settings_child_wait(void);

/* memory.c: memory on a node, in folios of a size */
#define PMD_BYTES (2UL << 20)

struct region {
	char *base;		/* aligned to PMD_BYTES */
	size_t bytes;
	size_t folio_bytes;
	int node;		/* where first touch puts it */
	void *map;		/* what munmap() needs */
	size_t map_bytes;
	const unsigned char *kept;	/* pages that count; NULL: all */
	bool shuffled;		/* lists of it have random order */
	size_t per_call;	/* list entries of one call; 0: all */
	size_t turns;		/* lists name it so often, there and back */
	bool all;		/* moves pages that others map, too */
	bool hugetlb;		/* its folios are never split */
};

bool folio_size_supported(size_t folio_bytes);
bool folio_size_check(size_t folio_bytes, bool hugetlb);
size_t sizes_drop_unsupported(size_t *sizes, size_t nr, bool hugetlb);
void folio_size_select(size_t folio_bytes);
void region_map(struct region *r, size_t bytes, size_t folio_bytes, int node);
void region_map_shared(struct region *r, size_t bytes, int node);
void region_unmap(struct region *r);
void region_share(const struct region *r, unsigned int index,
		  unsigned int nr, size_t *start, size_t *end);
void region_fill(struct region *r, uint64_t seed);
void region_touch(const struct region *r);
bool region_verify(const struct region *r, uint64_t seed, size_t *offset);
#define QUERY_PAGES 4096UL
size_t region_query(const struct region *r, size_t offset, int *nodes);
bool region_on_node(const struct region *r, int node, size_t *offset,
		    int *found);
bool region_count_split(const struct region *r, size_t *nr_split);
bool region_count_unlike(const struct region *r, uint64_t times,
			 size_t *nr_unlike);
/* Physical addresses, in ascending order. */
#define MAX_RANGES 256
struct physical {
	uint64_t start, end;
};
size_t region_ranges(const struct region *r,
		     struct physical ranges[MAX_RANGES]);
long region_move(const struct region *r, int node, uint64_t *elapsed_ns);

/* page_cache.c: files, and memory that is their page cache */
void files_on_image(const char *image);
void region_map_file(struct region *r, size_t bytes, int node, uint64_t seed);

/* damon.c: moves of physical memory */
uint64_t damon_move(const struct physical *ranges, size_t nr, int node);

/* hugetlb.c: memory of hugetlb, and its pools */
#define HUGETLB_MAX_BYTES (1UL << 30)

bool hugetlb_supported(size_t folio_bytes);
void hugetlb_reserve(int node, size_t folio_bytes, uint64_t bytes);
void region_map_hugetlb(struct region *r, size_t bytes, size_t folio_bytes,
			int node);
void region_forget_hugetlb(const struct region *r);

/* moving.c: memory that a measurement moves, and the check after it */
void regions_are_hugetlb(void);
void region_prepare(struct region *r, size_t bytes, size_t folio_bytes,
		    int node);
void region_allocate(struct region *r, size_t bytes, size_t folio_bytes,
		     int node, uint64_t seed);
uint64_t region_must_move(const struct region *r, int node, const char *engine);
void region_check_content(const struct region *r, uint64_t seed,
			  const char *engine, unsigned int round);
void region_check(const struct region *r, int node, uint64_t seed,
		  const char *engine, unsigned int round);
void spacer_take(struct region *r, size_t folio_bytes, int node);
#define SPACER_MAX_BYTES (8 * PMD_BYTES)
void region_drain_lru(const struct region *r);
void region_sabotage(struct region *r, const char *what, int node);
int caller_cpu(cpu_set_t *cpus, int wanted, int from, int to);

/* pages.c: small pages that several processes map, or that are not in order */
#define MANY_PROCESSES 16

enum pages_kind {
	PAGES_RUNS,	/* anonymous, in order */
	PAGES_RANDOM,	/* anonymous, in random order */
	PAGES_SHARED,	/* anonymous, mapped by two processes */
	PAGES_SHARED16,	/* the same, by MANY_PROCESSES */
	PAGES_SHMEM,	/* mapped by one process */
	PAGES_SHMEM16,
	PAGES_FILE,	/* clean page cache of a file, mapped by one process */
	PAGES_FILE16,
	PAGES_MLOCKED,
	PAGES_KSM,	/* merged by KSM, and mapped once */
	PAGES_INHERITED, /* anonymous, shared with a former child */
	PAGES_MIXED,	/* anonymous, one in 16 is inherited */
	PAGES_WATCHED,	/* anonymous, watched by a userfaultfd */
	NR_PAGES_KINDS,
};

struct pages {
	enum pages_kind kind;
	struct region region;
	pid_t children[MANY_PROCESSES - 1];
	size_t nr_children;
	int watch_fd;
};

extern const char *const pages_names[NR_PAGES_KINDS + 1];

bool pages_are_of_file(enum pages_kind kind);
void pages_make(struct pages *pages, enum pages_kind kind, size_t bytes,
		uint64_t seed);
void pages_free(struct pages *pages);

/* machine.c: pages, nodes, CPUs, and settings of all else that moves pages */
size_t page_bytes(void);
void node_list(char *buf, size_t size);
int node_first_cpu(int node);
bool node_free_bytes(int node, uint64_t *bytes);
uint64_t node_needs(uint64_t bytes);
void node_check_free(int node, uint64_t bytes);
void memory_bind(void *base, size_t bytes, int node, unsigned int flags);
void memory_unbind(void *base, size_t bytes);
void task_bind(int node);
void task_unbind(void);
void pin_to_cpu(int cpu);
struct modules {
	const char *names[8];	/* 'FILE.ko' or 'FILE.ko NAME=VALUE' */
	size_t nr;
};

void modules_load(const struct modules *modules);
void machine_report(void);
void machine_quiet(void);

/* init.c: a program as /init; without effect for other processes */
void become_init(void);
void mount_or_die(const char *type, const char *dir);

/* parallel.c: threads, and filling and verifying on each CPU */
void thread_start(pthread_t *thread, void *(*run)(void *arg), void *arg);
void parallel_setup(const cpu_set_t *cpus, int first_cpu);
void parallel_run(void (*work)(void *arg, unsigned int index, unsigned int nr),
		  void *arg);

/* translations.c: so that DAMON sees accesses on emulated CPUs, too */
void translations_forget(void);

/* hogs.c: work that keeps all CPUs busy, started and stopped on request */
void hogs_create(void);
void hogs_run(void);
void hogs_pause(void);
uint64_t hogs_progress(void);

#endif /* PF_BENCH_H */
