// SPDX-License-Identifier: GPL-2.0-only
/* A program as /init of an initramfs: mounts file systems, and powers off. */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <sys/stat.h>
#include <unistd.h>

#include "bench.h"

static void power_off(void)
{
	fflush(stdout);
	sync();
	reboot(RB_POWER_OFF);
}

void mount_or_die(const char *type, const char *dir)
{
	mkdir(dir, 0755);
	if (mount(type, dir, type, 0, NULL) && errno != EBUSY)
		bench_die(BENCH_LACKING, "cannot mount %s: %s", dir,
			  strerror(errno));
}

/* As init, mount the file systems, and switch the machine off at the end. */
void become_init(void)
{
	if (getpid() != 1)
		return;
	if (atexit(power_off))
		power_off();
	mount_or_die("devtmpfs", "/dev");
	mount_or_die("proc", "/proc");
	mount_or_die("sysfs", "/sys");
	/* On a kernel that has it: settings of engines are there. */
	mount("debugfs", "/sys/kernel/debug", "debugfs", 0, NULL);
}
