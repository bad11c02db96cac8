// SPDX-License-Identifier: GPL-2.0-only
/*
 * Move folios with DMA channels that fail in each way that dmasim simulates,
 * while writers change the folios.  No byte may be lost.
 *
 *	campaign [--folios N] [--seed N] [--faults LIST] [--timeout-ms N]
 *		 [--break RULE] [--list]
 *
 * The program writes JSON objects to stdout, one per line: the progress and the
 * result of each fault, the leaks, and the end.  Lines that start with # are
 * for people.  The exit status is 0 if no check failed.
 *
 * Needs the modules dmasim and dcbm, which must not be loaded.
 */
#include <getopt.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_campaign.h"
#include "mo_util.h"

#define TICK_US 50000
#define PROGRESS_MS 2000
/* Ends a phase whose fault stops all progress. */
#define PHASE_MS 300000
#define RECOVER_MS 20000
/*
 * An emulated CPU is slow, so a call may take this much longer than its
 * timeouts.  The longest call took 1 s on an idle host, and 4 s on a busy one.
 * A call that waits for a device which never answers takes longer: it ends with
 * the phase.
 */
#define SLACK_MS 30000

static unsigned long nr_folios = 200000;
static __u64 seed = 1;
static const char *wanted;
static unsigned int timeout_ms = 200;
static const char *broken_rule;
static struct dma_setup setup;
static __u64 rolls;

struct fault {
	const char *name;
	const char *file;	/* of dmasim, NULL: the phase sets none */
	unsigned long value;
	unsigned int late;	/* in multiples of the timeout */
	const char *terminate;	/* result of terminate_all, if not "stop" */
	bool trusted;		/* dcbm is told that terminate_all stops */
	bool repair;		/* channels recover only after repair() */
	bool doubt;		/* newer transfers or off and on end a hold */
	bool keeps;		/* pages stay lost */
	bool damages;		/* demonstrates damage: only on demand */
	void (*act)(const struct fault *fault, unsigned int nth);
	unsigned int act_ms;
};

struct phase {
	const struct fault *fault;
	struct load_stats load;
	unsigned long engine, cpu, failed, declined, held;
	unsigned long held_before, held_after;
	unsigned long errors, timeouts, refused, hits;
	unsigned long verified, stuck, after_us;
	unsigned int resets, acts;
	unsigned long ms;
	char problems[512];
};

static unsigned long now_ms(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return ts.tv_sec * 1000UL + ts.tv_nsec / 1000000;
}

static unsigned int roll(unsigned int sides)
{
	return mo_mix(seed, rolls++) % sides;
}

static __printf(2, 3) void problem(struct phase *p, const char *fmt, ...)
{
	size_t len = strlen(p->problems);
	va_list args;

	if (len && len < sizeof(p->problems) - 2)
		len += sprintf(p->problems + len, "; ");
	va_start(args, fmt);
	vsnprintf(p->problems + len, sizeof(p->problems) - len, fmt, args);
	va_end(args);
}

static void set_terminate(const struct fault *fault)
{
	dma_set(-1, "terminate", fault->terminate ?: "stop");
}

/*
 * Make terminate_all stop the devices, and reset retired channels, as an
 * administrator would.  Returns the number of channels that work again.
 */
static unsigned int repair(const struct fault *fault)
{
	unsigned int stay, back;

	dma_set(-1, "terminate", "stop");
	dcbm_trust(true);
	back = dcbm_reset(&stay);
	dcbm_trust(fault->trusted);
	set_terminate(fault);
	return back;
}

/* One channel dies.  The next call revives all channels. */
static void act_dead(const struct fault *fault, unsigned int nth)
{
	if (nth % 2)
		dma_set(-1, "dead", "0");
	else
		dma_set(roll(dma_nr_chans()), "dead", "1");
}

static void act_vanish(const struct fault *fault, unsigned int nth)
{
	unsigned int device = nth % dma_nr_devices();

	/* Without this, dcbm could not release channels that hold folios. */
	dma_set(-1, "terminate", "stop");
	dcbm_trust(true);
	dma_vanish(device);
	usleep(TICK_US);
	dma_return(device);
	dcbm_trust(fault->trusted);
}

static void act_reload(const struct fault *fault, unsigned int nth)
{
	/* Without this, dcbm could not release its channels. */
	dma_set(-1, "terminate", "stop");
	dcbm_trust(true);
	dcbm_reload(&setup);
	dcbm_trust(fault->trusted);
}

/* dcbm must not let the driver forget descriptors in flight. */
static void act_give_back(const struct fault *fault, unsigned int nth)
{
	if (nth < 3)
		dcbm_off_and_on();
}

static void arm_at_random(void)
{
	static const char *const files[] = {
		"fail_every", "stall_every", "late_every", "lose_irq_every",
		"refuse_every", "fail_nth", "stall_nth", "late_nth",
	};
	int chan = roll(dma_nr_chans());

	dma_set_number(chan, files[roll(ARRAY_SIZE(files))],
		       roll(4) ? 5 + roll(100) : 0);
	dma_set_number(chan, "late_ms", roll(5 * timeout_ms));
	dma_set(chan, "terminate", roll(3) ? "stop" : "error");
}

static void act_mixed(const struct fault *fault, unsigned int nth)
{
	unsigned int what = roll(16);

	if (what < 8) {
		arm_at_random();
	} else if (what < 12) {
		dma_no_faults();
		repair(fault);
		dcbm_trust(roll(2));
	} else if (what < 13) {
		dma_set(-1, "terminate", "stop");
		dcbm_trust(true);
		dcbm_off_and_on();
	} else if (what < 14) {
		act_vanish(fault, nth);
	} else if (what < 15) {
		act_reload(fault, nth);
	} else {
		act_dead(fault, nth);
	}
}

static const struct fault faults[] = {
	{ .name = "none" },
	{ .name = "fail", .file = "fail_every", .value = 5 },
	{ .name = "refuse", .file = "refuse_every", .value = 3 },
	{ .name = "reject", .file = "reject_every", .value = 5 },
	{ .name = "hide-error", .file = "hide_error_every", .value = 29,
	  .doubt = true },
	{ .name = "abort", .file = "abort_every", .value = 60,
	  .doubt = true },
	{ .name = "lose-irq", .file = "lose_irq_every", .value = 29,
	  .repair = true },
	{ .name = "stall", .file = "stall_every", .value = 60,
	  .trusted = true },
	{ .name = "stall-held", .file = "stall_every", .value = 60,
	  .repair = true },
	{ .name = "stall-error", .file = "stall_every", .value = 60,
	  .terminate = "error", .trusted = true, .repair = true },
	{ .name = "late", .file = "late_every", .value = 60, .late = 3 },
	{ .name = "late-stopped", .file = "late_every", .value = 60,
	  .late = 3, .trusted = true },
	{ .name = "late-error", .file = "late_every", .value = 60, .late = 3,
	  .terminate = "error", .trusted = true },
	{ .name = "dead", .file = "dead", .trusted = true,
	  .act = act_dead, .act_ms = 300 },
	{ .name = "vanish", .act = act_vanish, .act_ms = 500 },
	{ .name = "reload", .file = "late_every", .value = 60, .late = 2,
	  .act = act_reload, .act_ms = 700 },
	{ .name = "mixed", .act = act_mixed, .act_ms = 150 },
	/* No real device or driver may behave as these two. */
	{ .name = "lie", .file = "late_every", .value = 60, .late = 3,
	  .terminate = "lie", .keeps = true, .act = act_give_back,
	  .act_ms = 1000 },
	{ .name = "trusted-lie", .file = "late_every", .value = 15, .late = 3,
	  .terminate = "lie", .trusted = true, .keeps = true,
	  .damages = true },
};

static bool is_wanted(const struct fault *fault)
{
	size_t len = strlen(fault->name);
	const char *word;

	if (!wanted)
		return !fault->damages;
	for (word = wanted; word; word = strchr(word, ',')) {
		word += *word == ',';
		if (!strncmp(word, fault->name, len) &&
		    (!word[len] || word[len] == ','))
			return true;
	}
	return false;
}

static void print_progress(const struct phase *p, unsigned long moved)
{
	printf("{\"type\": \"progress\", \"fault\": \"%s\", \"folios\": %lu}\n",
	       p->fault->name, moved);
	fflush(stdout);
}

/* Returns how often the fault has hit so far. */
static unsigned long count_hits(const struct phase *p)
{
	unsigned long hits = dcbm_chan_sum("timeouts") + dma_count("errors") +
		dma_count("late") + dma_count("lost_irqs") +
		dma_count("hidden");

	/* The device also refuses descriptors when it runs out of them. */
	if (!strcmp(p->fault->name, "refuse"))
		hits += dma_count("refused");
	return hits;
}

/* Returns true if enough folios have moved, and the fault has happened. */
static bool is_enough(const struct phase *p, unsigned long moved,
		      unsigned long folios)
{
	if (moved < folios)
		return false;
	if (p->fault->act)
		return p->acts >= 2;
	return !p->fault->file || count_hits(p);
}

/* Act as an administrator while movers migrate. */
static void watch(struct phase *p, unsigned long folios)
{
	const struct fault *fault = p->fault;
	unsigned long begin = now_ms(), acted = begin, shown = begin, now;
	struct load_stats load;
	unsigned int stay;

	if (fault->damages) {
		/*
		 * The late write may hit the kernel's memory after these pages
		 * are freed.
		 */
		sleep(fault->late * timeout_ms / 1000 + 3);
		return;
	}
	do {
		usleep(TICK_US);
		p->resets += fault->repair ? repair(fault) : dcbm_reset(&stay);
		now = now_ms();
		if (fault->act && now - acted >= fault->act_ms) {
			fault->act(fault, p->acts++);
			acted = now_ms();
		}
		load_see(&load);
		if (now - shown >= PROGRESS_MS) {
			print_progress(p, load.moved);
			shown = now;
		}
	} while (!is_enough(p, load.moved, folios) && now - begin < PHASE_MS);
	if (load.moved < folios)
		problem(p, "only %lu of %lu folios in time", load.moved, folios);
}

static void arm(const struct fault *fault)
{
	set_terminate(fault);
	dcbm_trust(fault->trusted);
	if (fault->late)
		dma_set_number(-1, "late_ms", fault->late * timeout_ms);
	if (fault->file)
		dma_set_number(-1, fault->file, fault->value);
	if (broken_rule)
		mo_write(PATH_DEBUG "break_rules", broken_rule);
}

/* Bring all channels back, and wait until no page is held needlessly. */
static void recover(struct phase *p)
{
	unsigned long until = now_ms() + p->fault->late * timeout_ms + 1000;
	unsigned int stay;

	dma_no_faults();
	/* Wait for the channels that recover alone. */
	while (leaks_held() > p->held_before && now_ms() < until)
		usleep(10000);
	p->held_after = leaks_held();
	dma_set(-1, "terminate", "stop");
	dcbm_trust(true);
	if (p->fault->doubt) {
		dcbm_off_and_on();
		dcbm_trust(true);
	}
	until = now_ms() + RECOVER_MS;
	do {
		p->resets += dcbm_reset(&stay);
		p->held_after = leaks_held();
		if (!stay && p->held_after <= p->held_before)
			break;
		usleep(10000);
	} while (now_ms() < until && (stay || !p->fault->keeps));
	if (stay)
		problem(p, "%u channels cannot be reset", stay);
	if (p->held_after > p->held_before && !p->fault->keeps)
		problem(p, "%lu folios are still held",
			p->held_after - p->held_before);
	/* They stay trusted: else dcbm could wait for a lost interrupt. */
}

static void count(struct phase *p, int sign)
{
	p->engine += sign * mo_counter("engine_folios");
	p->cpu += sign * mo_counter("cpu_folios");
	p->failed += sign * mo_counter("failed_folios");
	p->declined += sign * mo_counter("declined_folios");
	p->held += sign * mo_counter("held_folios");
}

static void judge(struct phase *p, unsigned long limit_ms)
{
	if (p->load.wrong_reads)
		problem(p, "writers read %lu words that they had not written",
			p->load.wrong_reads);
	if (!p->verified)
		problem(p, "damaged memory");
	if (p->stuck > p->held_after)
		problem(p, "%lu folios cannot be moved", p->stuck);
	if (p->load.over_limit)
		problem(p, "%lu calls took longer than %lu ms",
			p->load.over_limit, limit_ms);
	if (p->after_us > SLACK_MS * 1000UL)
		problem(p, "a call took %lu ms after the recovery",
			p->after_us / 1000);
	if (!p->engine)
		problem(p, "the engine copied nothing");
	if (p->fault->file && !p->fault->act && !p->hits)
		problem(p, "the fault never happened");
	if (p->held && p->fault->trusted && !p->fault->terminate)
		problem(p, "folios were held, but the device can be stopped");
}

static void print_phase(const struct phase *p, unsigned long limit_ms)
{
	const struct load_stats *load = &p->load;
	unsigned long kept = p->held_after - p->held_before;

	printf("{\"type\": \"phase\", \"fault\": \"%s\", \"in_order\": %s, ",
	       p->fault->name, setup.out_of_order ? "false" : "true");
	printf("\"folios\": %lu, \"engine\": %lu, \"cpu\": %lu, ", load->moved,
	       p->engine, p->cpu);
	printf("\"failed\": %lu, \"declined\": %lu, ", p->failed, p->declined);
	printf("\"held\": %lu, \"released\": %lu, \"kept\": %lu, ", p->held,
	       p->held - kept, kept);
	printf("\"left\": %lu, \"stuck\": %lu, ", load->left, p->stuck);
	printf("\"hits\": %lu, \"errors\": %lu, \"timeouts\": %lu, ", p->hits,
	       p->errors, p->timeouts);
	printf("\"refused\": %lu, ", p->refused);
	printf("\"resets\": %u, \"acts\": %u, ", p->resets, p->acts);
	printf("\"writes\": %lu, \"wrong_reads\": %lu, \"verified_bytes\": %lu, ",
	       load->writes, load->wrong_reads, p->verified);
	printf("\"calls\": %lu, \"longest_ms\": %lu, \"limit_ms\": %lu, ",
	       load->calls, load->longest_us / 1000, limit_ms);
	printf("\"over_limit\": %lu, \"after_ms\": %lu, ", load->over_limit,
	       p->after_us / 1000);
	printf("\"ms\": %lu, \"problems\": \"%s\"}\n", p->ms, p->problems);
	fflush(stdout);
}

static void run_phase(struct phase *p, unsigned long folios)
{
	unsigned long limit_ms = 2 * timeout_ms + SLACK_MS;
	unsigned long begin = now_ms();

	dma_load(&setup);
	count(p, -1);
	p->held_before = leaks_held();
	load_start(limit_ms * 1000, mo_mix(seed, rolls++), p->fault->damages);
	arm(p->fault);
	watch(p, folios);
	load_stop(&p->load);
	p->errors = dcbm_chan_sum("errors");
	p->timeouts = dcbm_chan_sum("timeouts");
	p->refused = dma_count("refused");
	p->hits = count_hits(p);
	recover(p);
	count(p, 1);
	p->stuck = load_settle(&p->after_us);
	p->verified = load_verify();
	load_end();
	if (broken_rule)
		mo_write(PATH_DEBUG "break_rules", "none");
	/* After such a fault, dmasim and dcbm must stay loaded. */
	if (!p->fault->keeps)
		dma_unload();
	p->ms = now_ms() - begin;
	judge(p, limit_ms);
	print_phase(p, limit_ms);
}

/* Allocate everything that stays allocated, before the baseline is taken. */
static void warm_up(struct leaks_baseline *before)
{
	struct load_stats load;

	leaks_prepare();
	dma_load(&setup);
	load_start(-1UL, seed, false);
	usleep(500000);
	load_stop(&load);
	load_end();
	dma_unload();
	leaks_before(before);
}

static unsigned int shares(const struct fault *fault)
{
	return strcmp(fault->name, "mixed") ? 1 : 3;
}

static int run_all(void)
{
	unsigned int i, nr = 0, nr_wrong = 0;
	struct leaks_baseline before;
	unsigned long moved = 0, kept = 0;
	bool checked = false;

	for (i = 0; i < ARRAY_SIZE(faults); i++)
		nr += is_wanted(&faults[i]) ? shares(&faults[i]) : 0;
	if (!nr)
		mo_die("no such fault: %s", wanted);
	setup.timeout_ms = timeout_ms;
	warm_up(&before);
	for (i = 0; i < ARRAY_SIZE(faults); i++) {
		struct phase p = { .fault = &faults[i] };

		if (!is_wanted(p.fault))
			continue;
		/*
		 * Check for leaks now: the next faults lose pages on purpose.
		 */
		if (p.fault->keeps && !checked) {
			nr_wrong += !leaks_check(&before);
			checked = true;
		}
		/* Without an order, no newer transfer proves anything. */
		setup.out_of_order = !faults[i].doubt && (i + seed) % 2;
		run_phase(&p, nr_folios * shares(p.fault) / nr + 1);
		moved += p.load.moved;
		kept += p.held_after - p.held_before;
		nr_wrong += p.problems[0] != '\0';
		/* After this fault, no other fault can use the devices. */
		if (p.fault->keeps)
			break;
	}
	if (!checked)
		nr_wrong += !leaks_check(&before);
	leaks_done();
	printf("{\"type\": \"end\", \"folios\": %lu, \"kept\": %lu, ", moved,
	       kept);
	printf("\"dma_api_errors\": %ld, \"wrong\": %u}\n",
	       leaks_dma_errors() - before.errors, nr_wrong);
	return nr_wrong ? 1 : 0;
}

static void list_faults(void)
{
	unsigned int i;

	for (i = 0; i < ARRAY_SIZE(faults); i++)
		printf("%s%s\n", faults[i].name,
		       faults[i].damages ? " damages" : "");
}

static const struct option options[] = {
	{ "folios", required_argument, NULL, 'n' },
	{ "seed", required_argument, NULL, 's' },
	{ "faults", required_argument, NULL, 'f' },
	{ "timeout-ms", required_argument, NULL, 't' },
	{ "break", required_argument, NULL, 'b' },
	{ "list", no_argument, NULL, 'l' },
	{}
};

int main(int argc, char **argv)
{
	const char *why_not;
	int c;

	while ((c = getopt_long(argc, argv, "", options, NULL)) != -1) {
		switch (c) {
		case 'n':
			nr_folios = strtoul(optarg, NULL, 0);
			break;
		case 's':
			seed = strtoull(optarg, NULL, 0);
			break;
		case 'f':
			wanted = optarg;
			break;
		case 't':
			timeout_ms = strtoul(optarg, NULL, 0);
			break;
		case 'b':
			broken_rule = optarg;
			break;
		case 'l':
			list_faults();
			return 0;
		default:
			return 2;
		}
	}
	why_not = mo_cannot_run();
	if (why_not) {
		printf("# %s\n", why_not);
		return KSFT_SKIP;
	}
	setvbuf(stdout, NULL, _IOLBF, 0);
	return run_all();
}
