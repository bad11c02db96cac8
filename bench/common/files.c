// SPDX-License-Identifier: GPL-2.0-only
/* One-value files, and settings that are always restored. */
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "bench.h"

#define MAX_SETTINGS 64

struct setting {
	char path[128];
	char old[160];
};

static struct setting settings[MAX_SETTINGS];
/* Signal handlers read this, so complete an entry before it counts. */
static volatile sig_atomic_t nr_settings;
/* Async-signal-safe functions, which run before settings are restored. */
static void (*cleanups[8])(void);
static volatile sig_atomic_t nr_cleanups;
volatile pid_t settings_child;

/* Read a small file, and remove the newline at its end. */
bool file_read(const char *path, char *buf, size_t size)
{
	int fd = open(path, O_RDONLY | O_CLOEXEC);
	ssize_t len;

	if (fd < 0)
		return false;
	len = read(fd, buf, size - 1);
	close(fd);
	if (len < 0)
		return false;
	while (len && buf[len - 1] == '\n')
		len--;
	buf[len] = '\0';
	return true;
}

/* Async-signal-safe. */
bool file_write(const char *path, const char *value)
{
	int fd = open(path, O_WRONLY | O_CLOEXEC);
	ssize_t len;
	int err;

	if (fd < 0)
		return false;
	len = write(fd, value, strlen(value));
	err = errno;
	close(fd);
	errno = err;
	return len == (ssize_t)strlen(value);
}

bool file_read_u64(const char *path, uint64_t *value)
{
	char buf[32];

	return file_read(path, buf, sizeof(buf)) && parse_u64(buf, value);
}

/*
 * Read the value that restores the present setting.  Files such as
 * transparent_hugepage/enabled list all choices, with brackets around the
 * present one.  @buf is empty if the file cannot be read.
 */
void setting_value(const char *path, char *buf, size_t size)
{
	char *open_bracket, *close_bracket;

	buf[0] = '\0';
	if (!file_read(path, buf, size))
		return;
	open_bracket = strchr(buf, '[');
	close_bracket = open_bracket ? strchr(open_bracket, ']') : NULL;
	if (close_bracket) {
		size_t len = (size_t)(close_bracket - open_bracket - 1);

		memmove(buf, open_bracket + 1, len);
		buf[len] = '\0';
	}
}

/* Add the value to the open JSON object. */
void setting_report(const char *key, const char *path)
{
	char value[160];

	setting_value(path, value, sizeof(value));
	if (value[0])
		json_str(key, value);
	else
		json_null(key);
}

/* Read the number of a line "name number", as in /proc/vmstat. */
bool line_read_u64(const char *path, const char *name, uint64_t *value)
{
	size_t len = strlen(name);
	FILE *f = fopen(path, "re");
	bool found = false;
	char line[160];

	while (f && !found && fgets(line, sizeof(line), f)) {
		if (strncmp(line, name, len) || line[len] != ' ')
			continue;
		line[strcspn(line, "\n")] = '\0';
		found = parse_u64(line + len + 1, value);
	}
	if (f)
		fclose(f);
	return found;
}

/*
 * Restore this setting to @old, or with NULL to the present value.  Returns
 * false with errno if the value is unknown.
 */
bool setting_keep(const char *path, const char *old)
{
	struct setting *s = &settings[nr_settings];

	for (int i = 0; i < nr_settings; i++)
		if (!strcmp(settings[i].path, path))
			return true;
	if (nr_settings == MAX_SETTINGS || strlen(path) >= sizeof(s->path))
		bench_die(BENCH_FAILED, "too many settings to put back at %s",
			  path);
	strcpy(s->path, path);
	if (old)
		snprintf(s->old, sizeof(s->old), "%s", old);
	else
		setting_value(path, s->old, sizeof(s->old));
	if (!s->old[0])
		return false;
	nr_settings++;
	return true;
}

/*
 * Write @value, and remember the present value at the first write.  Returns
 * false with errno if the file is missing or rejects the value.
 */
bool setting_pin(const char *path, const char *value)
{
	char now[sizeof(settings[0].old)];

	if (!setting_keep(path, NULL))
		return false;
	setting_value(path, now, sizeof(now));
	if (!strcmp(now, value))
		return true;
	return file_write(path, value);
}

/* Pin the setting, or end the program. */
void setting_must_pin(const char *path, const char *value)
{
	if (!setting_pin(path, value))
		bench_die(BENCH_LACKING, "cannot write '%s' to %s: %s", value,
			  path, strerror(errno));
}

/* Report the present value in the open JSON object, then try to pin @value. */
void setting_report_and_pin(const char *key, const char *path,
			    const char *value)
{
	setting_report(key, path);
	if (!access(path, F_OK) && !setting_pin(path, value))
		fprintf(stderr, "warning: cannot write '%s' to %s: %s\n", value,
			path, strerror(errno));
}

/*
 * Call @cleanup, which is async-signal-safe, before settings are restored at
 * the end or after a signal.  The last cleanup runs first.
 */
void settings_restore_after(void (*cleanup)(void))
{
	for (int i = 0; i < nr_cleanups; i++)
		if (cleanups[i] == cleanup)
			return;
	if (nr_cleanups == ARRAY_SIZE(cleanups))
		bench_die(BENCH_FAILED, "too many cleanups");
	cleanups[nr_cleanups] = cleanup;
	nr_cleanups++;
}

/* Async-signal-safe; restores in reverse order. */
void settings_restore(void)
{
	if (settings_child > 0) {
		/* A policy has a process group of its own. */
		kill(-settings_child, SIGKILL);
		if (!kill(settings_child, SIGKILL))
			waitpid(settings_child, NULL, 0);
	}
	while (nr_cleanups > 0) {
		cleanups[nr_cleanups - 1]();
		nr_cleanups--;
	}
	while (nr_settings > 0) {
		struct setting *s = &settings[nr_settings - 1];

		if (!file_write(s->path, s->old)) {
			static const char text[] = "warning: could not restore ";
			ssize_t ignored;

			ignored = write(2, text, sizeof(text) - 1);
			ignored = write(2, s->path, strlen(s->path));
			ignored = write(2, "\n", 1);
			(void)ignored;
		}
		nr_settings--;
	}
}

static void on_interrupt(int sig)
{
	settings_restore();
	_exit(128 + sig);
}

/* SIGPIPE ends the program when the reader of its output has gone. */
static const int sigs[] = { SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGPIPE };

void settings_on_interrupt(void)
{
	struct sigaction sa = { .sa_handler = on_interrupt };

	/* A second signal must not interrupt the restore. */
	sigfillset(&sa.sa_mask);
	for (size_t i = 0; i < ARRAY_SIZE(sigs); i++)
		sigaction(sigs[i], &sa, NULL);
}

/*
 * Fork.  Signal handlers see *@child, the pid, before any signal arrives.  The
 * child has no handlers, because only the parent restores the settings.
 */
pid_t settings_fork(volatile pid_t *child)
{
	sigset_t all, old;
	pid_t pid;

	sigfillset(&all);
	sigprocmask(SIG_SETMASK, &all, &old);
	pid = fork();
	if (pid > 0)
		*child = pid;
	for (size_t i = 0; !pid && i < ARRAY_SIZE(sigs); i++)
		signal(sigs[i], SIG_DFL);
	sigprocmask(SIG_SETMASK, &old, NULL);
	if (pid < 0)
		bench_die(BENCH_LACKING, "fork: %s", strerror(errno));
	return pid;
}

/* Wait for settings_child.  If that fails, it has printed the reason. */
void settings_child_wait(void)
{
	pid_t pid = settings_child;
	siginfo_t ended;
	int status;

	/* Keep the pid reserved until the handler has forgotten the child. */
	waitid(P_PID, (id_t)pid, &ended, WEXITED | WNOWAIT);
	settings_child = 0;
	if (waitpid(pid, &status, 0) != pid || !WIFEXITED(status))
		bench_die(BENCH_FAILED, "a child was killed");
	if (WEXITSTATUS(status))
		exit(WEXITSTATUS(status));
}

void settings_restore_on_exit(void)
{
	if (atexit(settings_restore))
		bench_die(BENCH_FAILED, "atexit: %s", strerror(errno));
}
