/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that move pages while memory is short. */
#ifndef MO_PRESSURE_H
#define MO_PRESSURE_H

#include <stdbool.h>

/* This environment variable is set while pressure makes allocations fail. */
#define MO_PRESSURE "MO_PRESSURE"

/*
 * Make allocations of this thread fail, or succeed.  Returns false without
 * pressure.
 */
bool mo_pressure(bool on);

#endif /* MO_PRESSURE_H */
