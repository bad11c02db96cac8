/* SPDX-License-Identifier: GPL-2.0-only */
/* Results of self-tests, in the format KTAP. */
#ifndef KTAP_H
#define KTAP_H

#include <stdbool.h>

void ktap_start(void);
void check(bool ok, const char *name);
/* The exit code of the program. */
int ktap_end(void);

#endif
