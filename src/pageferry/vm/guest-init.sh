#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# Process 1 of the guest. The host's root is mounted read-only over 9P, or, where
# $pageferry_carried is set, the root is an initramfs. This adds what a command
# expects and runs $pageferry_run. virtme-ng's own init wants udev and runs
# systemd-tmpfiles, which takes longer than all the rest.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
# busybox runs its other halves by /proc/self/exe, which over 9P is QEMU's.
/bin/busybox mount -t proc proc /proc && mount -t sysfs sys /sys && mount -t tmpfs run /run
mkdir -p /dev/pts /dev/shm /dev/virtio-ports
for m in devpts:/dev/pts tmpfs:/dev/shm debugfs:/sys/kernel/debug tracefs:/sys/kernel/tracing configfs:/sys/kernel/config cgroup2:/sys/fs/cgroup; do
	grep -qw "${m%%:*}" /proc/filesystems && mount -t "${m%%:*}" none "${m#*:}"
done
[ -n "$pageferry_carried" ] || for d in /tmp /var/tmp /var/log /var/cache; do
	mkdir -p "/run/rw$d/upper" "/run/rw$d/work"
	mount -t overlay -o "lowerdir=$d,upperdir=/run/rw$d/upper,workdir=/run/rw$d/work" none "$d"
done
i=0; while eval "d=\$virtme_initmount$i"; [ -n "$d" ]; do
	mkdir -p "/$d"; mount -t 9p -o trans=virtio,version=9p2000.L,msize=524288,access=any "virtme.initmount$i" "/$d"; i=$((i + 1))
done
for p in /sys/class/virtio-ports/vport*; do ln -s "/dev/${p##*/}" "/dev/virtio-ports/$(cat "$p/name")"; done
for l in fd:fd stdin:fd/0 stdout:fd/1 stderr:fd/2; do ln -sf "/proc/self/${l#*:}" "/dev/${l%%:*}"; done
mkfifo /run/out /run/err
# Ports take one writer, so /dev/stdout must not be one. A daemon left behind
# may hold a pipe open for ever; three seconds are enough for what is in it.
cat /run/out >/dev/virtio-ports/virtme.stdout & cat /run/err >/dev/virtio-ports/pageferry.stderr &
setsid sh "$pageferry_run" </dev/null >/run/out 2>/run/err; code=$?
(sleep 3; killall -9 cat) & wait %1 %2
# On the port the second line waits until the host has the first. The console may
# lose its last ones: another CPU may be about to print them when the power goes.
# Until it does, stay, without a program: they can no longer be read.
echo "<0>pageferry: command ended with $code" >/dev/kmsg; { echo "ended $code"; echo; } >/dev/virtio-ports/pageferry.state; echo o >/proc/sysrq-trigger; while :; do :; done
