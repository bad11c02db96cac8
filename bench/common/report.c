// SPDX-License-Identifier: GPL-2.0-only
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "bench.h"

static void json_quote(const char *text)
{
	putchar('"');
	for (; *text; text++) {
		unsigned char c = (unsigned char)*text;

		if (c == '"' || c == '\\')
			printf("\\%c", c);
		else if (c < 0x20 || c >= 0x7f)
			printf("\\u%04x", c);
		else
			putchar(c);
	}
	putchar('"');
}

static void json_key(const char *key)
{
	printf(", ");
	json_quote(key);
	printf(": ");
}

void json_begin(const char *type)
{
	printf("{\"type\": ");
	json_quote(type);
}

void json_u64(const char *key, uint64_t value)
{
	json_key(key);
	printf("%llu", (unsigned long long)value);
}

void json_str(const char *key, const char *value)
{
	json_key(key);
	json_quote(value);
}

void json_bool(const char *key, bool value)
{
	json_key(key);
	printf(value ? "true" : "false");
}

void json_null(const char *key)
{
	json_key(key);
	printf("null");
}

void json_u64_or_null(const char *key, bool known, uint64_t value)
{
	if (known)
		json_u64(key, value);
	else
		json_null(key);
}

void json_u64_array(const char *key, const uint64_t *values, size_t nr)
{
	json_key(key);
	putchar('[');
	for (size_t i = 0; i < nr; i++)
		printf("%s%llu", i ? ", " : "",
		       (unsigned long long)values[i]);
	putchar(']');
}

void json_end(void)
{
	printf("}\n");
	if (fflush(stdout))
		exit(BENCH_FAILED);
}

/*
 * The message goes to stderr for people and to stdout for the tool.  In a VM
 * with one serial line the tool may see one of both only.
 */
void bench_die(enum bench_exit code, const char *fmt, ...)
{
	char message[512];
	va_list args;

	va_start(args, fmt);
	vsnprintf(message, sizeof(message), fmt, args);
	va_end(args);

	fprintf(stderr, "error: %s\n", message);
	json_begin("error");
	json_u64("exit", code);
	json_str("message", message);
	json_end();
	exit(code);
}

void bench_sleep_ns(uint64_t ns)
{
	struct timespec time = {
		.tv_sec = (time_t)(ns / 1000000000),
		.tv_nsec = (long)(ns % 1000000000),
	};

	while (clock_nanosleep(CLOCK_MONOTONIC, 0, &time, &time) == EINTR)
		;
}

uint64_t bench_now_ns(void)
{
	struct timespec ts;

	clock_gettime(CLOCK_MONOTONIC, &ts);
	return (uint64_t)ts.tv_sec * 1000000000ULL + (uint64_t)ts.tv_nsec;
}
