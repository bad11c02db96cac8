#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Runs the tests "callers" on DMA channels that fail.  Descriptors fail, stall,
# are late, lose their interrupt or are refused.  A channel is dead now and then,
# and one of two devices comes and goes.  The script resets channels that dcbm
# has retired.  No byte may be wrong.
#
#	callers_faults.sh [TEST...]	arguments of "callers"
#
# Run this in the directory of "callers".  The modules dmasim and dcbm must not
# be loaded.

dcbm=/sys/module/dcbm
dmasim=/sys/kernel/debug/dmasim
driver=/sys/bus/platform/drivers/dmasim
timeout_ms=400
stop=$(mktemp)

# set_chan CHANNEL FILE NUMBER [FILE NUMBER...]
set_chan()
{
	chan=$dmasim/$1
	shift
	while [ $# -ge 2 ]; do
		echo "$2" >"$chan/$1"
		shift 2
	done
}

arm_first()
{
	set_chan dmasim.0/chan0 fail_every 7 stall_every 23
	set_chan dmasim.0/chan1 late_ms $((timeout_ms / 2)) late_every 19 \
		lose_irq_every 11 refuse_every 5
}

arm_second()
{
	set_chan dmasim.1/chan0 fail_every 5
}

# Reset all retired channels. The simulated channels do stop on request.
reuse_channels()
{
	for chan in $dcbm/channels/*; do
		read -r state <"$chan/state" || continue
		case $state in
		retired*) echo 1 >"$chan/reset" ;;
		esac
	done 2>/dev/null
}

# The device vanishes in the middle of its copies, and comes back.
second_comes_and_goes()
{
	echo 1 >$dmasim/dmasim.1/vanish
	sleep 0.1
	echo dmasim.1 >$driver/unbind
	echo dmasim.1 >$driver/bind
	arm_second
	# This write makes dcbm look for channels again.
	echo 16 >$dcbm/nr_dma_chan
}

# Disturb the devices until the file is removed.
keep_going()
{
	turn=0
	while [ -e "$stop" ]; do
		sleep 0.3
		reuse_channels
		turn=$((turn + 1))
		[ $((turn % 4)) -ne 0 ] || set_chan dmasim.0/chan0 dead 1
		[ $((turn % 4)) -ne 1 ] || set_chan dmasim.0/chan0 dead 0
		[ $((turn % 8)) -ne 0 ] || second_comes_and_goes
	done
	set_chan dmasim.0/chan0 dead 0
	echo "# the second device went $((turn / 8)) times"
}

# sum FILE...: add up the numbers in these files.
sum()
{
	total=0
	for file in "$@"; do
		read -r number <"$file" && total=$((total + number))
	done
	echo $total
}

trap 'rm -f "$stop"' EXIT
trap 'exit 1' INT TERM HUP
modprobe dmasim devices=2 channels=2 && modprobe dcbm trust_terminate=dmasim \
	max_failures=1000000 timeout_ms=$timeout_ms || {
	modprobe -q -r dmasim
	echo "1..0 # SKIP needs the modules dmasim and dcbm"
	exit 4
}
echo 1 >/sys/kernel/debug/migrate_offload/engine_always
echo 1 >$dcbm/offloading
arm_first
arm_second
keep_going &
if [ $# -gt 0 ]; then
	ENGINE=dcbm ./callers "$@"
else
	ENGINE=dcbm ./callers -t is_offloaded
fi
status=$?
rm "$stop"
wait
first=$dmasim/dmasim.0
echo "# by the engine $(sum $dcbm/folios_migrated), not by it" \
	"$(sum $dcbm/folios_failures), held $(sum $dcbm/held_folios)"
echo "# errors $(sum $first/chan*/errors), late $(sum $first/chan*/late)," \
	"interrupts lost $(sum $first/chan*/lost_irqs)," \
	"terminated $(sum $first/chan*/terminated)," \
	"refused $(sum $first/chan*/refused)"
echo none >/sys/kernel/mm/migrate_offload/engine
rmmod dcbm dmasim || status=1
exit $status
