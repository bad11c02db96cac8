#!/bin/busybox sh
# SPDX-License-Identifier: GPL-2.0-only
# Process 1 of the guest. The root is the host's, read-only over 9P, or an initramfs if
# $pageferry_carried is set. This script mounts file systems and runs $pageferry_run.
# virtme-ng's own init needs udev, and runs systemd-tmpfiles, which takes longer than
# all the rest.
export PATH=/bin:/sbin:/usr/bin:/usr/sbin
# busybox starts applets through /proc/self/exe. On the host's /proc, over 9P, that is QEMU.
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
# A port accepts one writer, so /dev/stdout is a pipe. A daemon of the command may keep
# the pipe open for ever, so kill the readers three seconds after the command's end.
cat /run/out >/dev/virtio-ports/virtme.stdout & cat /run/err >/dev/virtio-ports/pageferry.stderr &
setsid sh "$pageferry_run" </dev/null >/run/out 2>/run/err; code=$?
(sleep 3; killall -9 cat) & wait %1 %2
# The second write to the port waits until the host has read the first. The console may
# lose its last lines at power-off. Loop in the shell until then: other programs can no
# longer be read.
echo "<0>pageferry: command ended with $code" >/dev/kmsg; { echo "ended $code"; echo; } >/dev/virtio-ports/pageferry.state; echo o >/proc/sysrq-trigger; while :; do :; done
