// SPDX-License-Identifier: GPL-2.0-only
/*
 * The directory in sysfs with the nodes that a scheme migrates to.
 *
 * A write to dests/nr_dests makes and removes the directories dests/0 and so
 * on.  Each has the files "id", for the node, and "weight".  Like all of
 * DAMON's files, they take effect when the kdamond starts, or executes
 * "commit".
 *
 * The array changes under damon_sysfs_lock.  The code that builds a scheme from
 * the array also holds this lock.  Writes to an id or a weight take no lock.
 */

#include <linux/err.h>
#include <linux/kobject.h>
#include <linux/kstrtox.h>
#include <linux/slab.h>
#include <linux/sysfs.h>

#include "sysfs-common.h"
#include "sysfs-dests.h"

struct damos_sysfs_dest {
	struct kobject kobj;
	unsigned int id;
	unsigned int weight;
};

struct damos_sysfs_dests {
	struct kobject kobj;
	struct damos_sysfs_dest **arr;
	int nr;
};

static struct damos_sysfs_dest *to_dest(struct kobject *kobj)
{
	return container_of(kobj, struct damos_sysfs_dest, kobj);
}

static struct damos_sysfs_dests *to_dests(struct kobject *kobj)
{
	return container_of(kobj, struct damos_sysfs_dests, kobj);
}

static ssize_t id_show(struct kobject *kobj, struct kobj_attribute *attr,
		       char *buf)
{
	return sysfs_emit(buf, "%u\n", to_dest(kobj)->id);
}

static ssize_t id_store(struct kobject *kobj, struct kobj_attribute *attr,
			const char *buf, size_t count)
{
	int err = kstrtouint(buf, 0, &to_dest(kobj)->id);

	return err ? err : count;
}

static struct kobj_attribute damos_sysfs_dest_id_attr =
	__ATTR_RW_MODE(id, 0600);

static ssize_t weight_show(struct kobject *kobj, struct kobj_attribute *attr,
			   char *buf)
{
	return sysfs_emit(buf, "%u\n", to_dest(kobj)->weight);
}

static ssize_t weight_store(struct kobject *kobj, struct kobj_attribute *attr,
			    const char *buf, size_t count)
{
	int err = kstrtouint(buf, 0, &to_dest(kobj)->weight);

	return err ? err : count;
}

static struct kobj_attribute damos_sysfs_dest_weight_attr =
	__ATTR_RW_MODE(weight, 0600);

static struct attribute *damos_sysfs_dest_attrs[] = {
	&damos_sysfs_dest_id_attr.attr,
	&damos_sysfs_dest_weight_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(damos_sysfs_dest);

static void damos_sysfs_dest_release(struct kobject *kobj)
{
	kfree(to_dest(kobj));
}

static const struct kobj_type damos_sysfs_dest_ktype = {
	.release = damos_sysfs_dest_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = damos_sysfs_dest_groups,
};

static void damos_sysfs_dests_empty(struct damos_sysfs_dests *dir)
{
	int i;

	for (i = 0; i < dir->nr; i++) {
		kobject_del(&dir->arr[i]->kobj);
		kobject_put(&dir->arr[i]->kobj);
	}
	kfree(dir->arr);
	dir->arr = NULL;
	dir->nr = 0;
}

static int damos_sysfs_dests_add(struct damos_sysfs_dests *dir)
{
	struct damos_sysfs_dest *dest;
	int err;

	dest = kzalloc(sizeof(*dest), GFP_KERNEL);
	if (!dest)
		return -ENOMEM;
	err = kobject_init_and_add(&dest->kobj, &damos_sysfs_dest_ktype,
				   &dir->kobj, "%d", dir->nr);
	if (err) {
		kobject_put(&dest->kobj);
		return err;
	}
	dir->arr[dir->nr++] = dest;
	return 0;
}

/* As with DAMON's other nr_ files, a write drops all former entries. */
static int damos_sysfs_dests_resize(struct damos_sysfs_dests *dir, int nr)
{
	int err = 0;

	damos_sysfs_dests_empty(dir);
	if (!nr)
		return 0;
	dir->arr = kmalloc_array(nr, sizeof(*dir->arr),
				 GFP_KERNEL | __GFP_NOWARN);
	if (!dir->arr)
		return -ENOMEM;
	while (!err && dir->nr < nr)
		err = damos_sysfs_dests_add(dir);
	if (err)
		damos_sysfs_dests_empty(dir);
	return err;
}

static ssize_t nr_dests_show(struct kobject *kobj, struct kobj_attribute *attr,
			     char *buf)
{
	return sysfs_emit(buf, "%d\n", to_dests(kobj)->nr);
}

static ssize_t nr_dests_store(struct kobject *kobj, struct kobj_attribute *attr,
			      const char *buf, size_t count)
{
	int nr, err = kstrtoint(buf, 0, &nr);

	if (err)
		return err;
	if (nr < 0)
		return -EINVAL;
	/*
	 * The holder of the lock may remove this directory, and then waits for
	 * this write.
	 */
	if (!mutex_trylock(&damon_sysfs_lock))
		return -EBUSY;
	err = damos_sysfs_dests_resize(to_dests(kobj), nr);
	mutex_unlock(&damon_sysfs_lock);
	return err ? err : count;
}

static struct kobj_attribute damos_sysfs_dests_nr_attr =
	__ATTR_RW_MODE(nr_dests, 0600);

static struct attribute *damos_sysfs_dests_attrs[] = {
	&damos_sysfs_dests_nr_attr.attr,
	NULL,
};
ATTRIBUTE_GROUPS(damos_sysfs_dests);

static void damos_sysfs_dests_release(struct kobject *kobj)
{
	kfree(to_dests(kobj));
}

static const struct kobj_type damos_sysfs_dests_ktype = {
	.release = damos_sysfs_dests_release,
	.sysfs_ops = &kobj_sysfs_ops,
	.default_groups = damos_sysfs_dests_groups,
};

struct damos_sysfs_dests *damos_sysfs_dests_make(struct kobject *parent)
{
	struct damos_sysfs_dests *dir;
	int err;

	dir = kzalloc(sizeof(*dir), GFP_KERNEL);
	if (!dir)
		return ERR_PTR(-ENOMEM);
	err = kobject_init_and_add(&dir->kobj, &damos_sysfs_dests_ktype, parent,
				   "dests");
	if (err) {
		kobject_put(&dir->kobj);
		return ERR_PTR(err);
	}
	return dir;
}

void damos_sysfs_dests_remove(struct damos_sysfs_dests *dir)
{
	damos_sysfs_dests_empty(dir);
	kobject_put(&dir->kobj);
}

int damos_sysfs_dests_set(struct damos *scheme,
			  const struct damos_sysfs_dests *dir)
{
	struct damos_migrate_dests *dests = &scheme->migrate_dests;
	int i;

	if (!dir->nr)
		return 0;
	/* After -ENOMEM, the caller frees the scheme, and these arrays. */
	dests->node_id_arr = kmalloc_array(dir->nr, sizeof(*dests->node_id_arr),
					   GFP_KERNEL);
	dests->weight_arr = kmalloc_array(dir->nr, sizeof(*dests->weight_arr),
					  GFP_KERNEL);
	if (!dests->node_id_arr || !dests->weight_arr)
		return -ENOMEM;
	for (i = 0; i < dir->nr; i++) {
		dests->node_id_arr[i] = dir->arr[i]->id;
		dests->weight_arr[i] = dir->arr[i]->weight;
	}
	dests->nr_dests = dir->nr;
	return 0;
}
