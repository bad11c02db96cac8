// SPDX-License-Identifier: GPL-2.0-only
#include "mo_fail.h"
#include "mo_util.h"

#define PATH_FAIL "/sys/kernel/debug/fail_page_alloc/"

const char *mo_fail_large(unsigned int min_order)
{
	if (!mo_exists(PATH_FAIL "probability"))
		return "no CONFIG_FAIL_PAGE_ALLOC";
	mo_write(PATH_FAIL "verbose", "0");
	mo_write(PATH_FAIL "task-filter", "N");
	mo_write(PATH_FAIL "ignore-gfp-highmem", "N");
	mo_write(PATH_FAIL "ignore-gfp-wait", "N");
	mo_write_number(PATH_FAIL "min-order", min_order);
	mo_write(PATH_FAIL "space", "0");
	mo_write(PATH_FAIL "times", "-1");
	mo_write(PATH_FAIL "probability", "100");
	return NULL;
}

void mo_fail_end(void)
{
	if (mo_exists(PATH_FAIL "probability"))
		mo_write(PATH_FAIL "probability", "0");
}
