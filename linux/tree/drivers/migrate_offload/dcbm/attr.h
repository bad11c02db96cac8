/* SPDX-License-Identifier: GPL-2.0-only */
/* The functions of dcbm's files in sysfs. */
#ifndef _DCBM_ATTR_H
#define _DCBM_ATTR_H

#include <linux/module.h>

#define DCBM_SHOW(show)							\
	ssize_t show(const struct module_attribute *attr,		\
		     struct module_kobject *mk, char *buf)

#define DCBM_STORE(store)						\
	ssize_t store(const struct module_attribute *attr,		\
		      struct module_kobject *mk, const char *buf,	\
		      size_t count)

#endif /* _DCBM_ATTR_H */
