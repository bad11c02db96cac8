/* SPDX-License-Identifier: GPL-2.0-only */
/* Threads that move pages while memory is short. */
#ifndef MO_PRESSURE_H
#define MO_PRESSURE_H

#include <stdbool.h>

/* The environment has it when allocations of threads that ask for it fail. */
#define MO_PRESSURE "MO_PRESSURE"

/* Let allocations of this thread fail, or no more.  False: they never do. */
bool mo_pressure(bool on);

#endif /* MO_PRESSURE_H */
