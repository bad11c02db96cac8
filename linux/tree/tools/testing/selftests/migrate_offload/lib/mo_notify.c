// SPDX-License-Identifier: GPL-2.0-only
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "../../kselftest.h"
#include "mo_notify.h"
#include "mo_util.h"

#define WAIT_TRIES 20000

bool mo_notify_load(void)
{
	const char *const load[] = { "modprobe", "migrate_notifier_test", NULL };

	return mo_exists(PATH_NOTIFY) || !mo_run(load);
}

void mo_notify_read(struct mo_notify *now)
{
	now->ranges = mo_read_number(PATH_NOTIFY "ranges");
	now->dropped = mo_read_number(PATH_NOTIFY "dropped");
	now->filled = mo_read_number(PATH_NOTIFY "filled");
	now->accesses = mo_read_number(PATH_NOTIFY "accesses");
	now->unpaired = mo_read_number(PATH_NOTIFY "unpaired");
	now->in_range = mo_read_number(PATH_NOTIFY "in_range");
	now->stale = mo_read_number(PATH_NOTIFY "stale");
	now->lost = mo_read_number(PATH_NOTIFY "lost");
}

long long mo_notify_failures(const struct mo_notify *before)
{
	struct mo_notify now;
	long long failures;

	mo_notify_read(&now);
	failures = now.unpaired - before->unpaired + now.in_range -
		before->in_range + now.stale - before->stale + now.lost -
		before->lost;
	if (failures)
		printf("# unpaired %lld, in a range %lld, stale %lld, lost %lld\n",
		       now.unpaired - before->unpaired,
		       now.in_range - before->in_range,
		       now.stale - before->stale, now.lost - before->lost);
	return failures;
}

static void notify_write(int fd, const char *text)
{
	if (write(fd, text, strlen(text)) < 0)
		mo_die("cannot write %s to " PATH_NOTIFY "watch: %m", text);
}

int mo_notify_watch(pid_t pid, const void *mem, size_t bytes, int word)
{
	int fd = open(PATH_NOTIFY "watch", O_WRONLY | O_CLOEXEC), len;
	char text[96];

	if (fd < 0)
		mo_die("cannot open " PATH_NOTIFY "watch: %m");
	len = snprintf(text, sizeof(text), "%d %lx %zu", pid ?: getpid(),
		       (unsigned long)mem, bytes);
	if (word != MO_NO_WORD)
		snprintf(text + len, sizeof(text) - len, " %d", word);
	notify_write(fd, text);
	return fd;
}

void mo_notify_stop(int fd)
{
	notify_write(fd, "stop");
}

void mo_notify_go(int fd)
{
	notify_write(fd, "go");
}

bool mo_notify_wait(long long nr)
{
	long long first = mo_read_number(PATH_NOTIFY "accesses");
	int tries;

	for (tries = 0; tries < WAIT_TRIES; tries++) {
		if (mo_read_number(PATH_NOTIFY "accesses") - first >= nr)
			return true;
		usleep(1000);
	}
	return false;
}
