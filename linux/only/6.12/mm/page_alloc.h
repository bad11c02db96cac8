/* SPDX-License-Identifier: GPL-2.0-only */
/* Newer kernels declare free_unref_folios() here. */
#include "internal.h"
