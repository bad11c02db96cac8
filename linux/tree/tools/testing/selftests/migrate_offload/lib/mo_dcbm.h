/* SPDX-License-Identifier: GPL-2.0-only */
/* Declarations that the files of the test program dcbm share. */
#ifndef MO_DCBM_H
#define MO_DCBM_H

#include <pthread.h>
#include <stdbool.h>

#include "mo_area.h"

#define PATH_DCBM "/sys/module/dcbm/"
#define PATH_SIM "/sys/kernel/debug/dmasim/dmasim.0/"
#define NR_CHANS 4
/*
 * A busy host stops the threads that simulate channels, for seconds at times.
 * So dcbm waits PATIENT_MS for a channel.  Calls that have to meet a timeout wait
 * only TIMEOUT_MS.
 */
#define PATIENT_MS 20000
#define TIMEOUT_MS 4000

/* The memory that tests move: on the first node at the start of each test. */
extern struct mo_area small, large;

/* Let the running test fail, and print the condition, unless it holds. */
#define expect(ok) expect_at(ok, #ok, __FILE__, __LINE__)
void expect_at(bool ok, const char *what, const char *file, int line);

long long now_ms(void);

/* A number in /sys/module/dcbm. */
long long dcbm_number(const char *name);
/*
 * The path of a file of the nth channel, whatever number its device has.  The
 * next call overwrites the path.
 */
const char *chan_file(unsigned int nth, const char *file);
bool chan_exists(unsigned int nth);
long long chan_number(unsigned int nth, const char *file);
bool chan_is(unsigned int nth, const char *state);
/* Files of one channel of the simulated device: its faults and counters. */
void sim_write(unsigned int chan, const char *name, const char *text);
long long sim_number(unsigned int chan, const char *name);
void fault(unsigned int chan, const char *name, long long value);
void fault_everywhere(const char *name, long long value);

/* An administrator who knows that the device has stopped resets its channel. */
void reset_stopped(unsigned int chan);
/* Wait until dcbm holds no folio. */
void wait_for_held(unsigned int ms);
/* Load dmasim and dcbm with these parameters, and activate dcbm. */
void load(const char *sim, const char *dcbm);
void unload(void);

/* How long dcbm waits for a channel. */
void set_timeout_ms(unsigned int ms);
/* Move memory to the second node once.  dcbm waits TIMEOUT_MS meanwhile. */
void move_with_timeout(struct mo_area *area);
/*
 * Move memory to the second node and back, and check its content.  Returns the
 * number of pages that did not move.
 */
unsigned long move_area(struct mo_area *area);
/* Move @small and @large as move_area() does, while threads write to both. */
unsigned long move_all(void);
/* Move both all the time, until end_moving() has seen two more moves. */
pthread_t start_moving(void);
void end_moving(pthread_t mover);

/* dcbm_stalls.c */
void test_late(void);
void test_kept_then_late(void);
void test_stall_stopped(void);
void test_stall_held(void);
void test_stall_posted(void);

/* dcbm_manners.c */
void test_rejected(void);
void test_hidden_errors(void);
void test_hidden_and_silent(void);
void test_kept_at_the_end(void);
void test_believed(void);
void test_aborted(void);
void test_off_and_on(void);
void test_unbind(void);
void test_vanish(void);
void test_left(void);
void test_not_named(void);
void test_prep_waits(void);
void test_refused_length(void);

#endif /* MO_DCBM_H */
