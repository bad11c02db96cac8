#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Tests the simulated DMA engine by dmatest, which is the test of Linux for any
# DMA engine, and by its own unit tests. Both run in several settings and with
# faults.
#
# The unit tests need kunit.enable=1 on the kernel command line.

params=/sys/module/dmatest/parameters
devices=/sys/devices/platform
faults=/sys/kernel/debug/dmasim/dmasim.0
nr=0
failed=0

# result STATUS NAME: print one line of the report.
result()
{
	nr=$((nr + 1))
	if [ "$1" -eq 0 ]; then
		echo "ok $nr $2"
	else
		echo "not ok $nr $2"
		failed=1
	fi
}

load()
{
	modprobe dmasim "$@" || echo "# dmasim $* cannot be loaded"
}

unload()
{
	# dmatest holds its channels until the next start.
	[ ! -d $params ] || rmmod dmatest
	rmmod dmasim
	result $? "$1: removed"
}

# A debug kernel takes a large part of a second to start a process. So the script
# uses shell builtins where it can.

# Mark the kernel log, so that since_mark reads the later lines alone.
mark()
{
	read -r uptime _ </proc/uptime
	mark="dmasim.sh: mark $nr $uptime"
	echo "$mark" >/dev/kmsg
}

# since_mark AWK_PROGRAM: run it on all lines of dmatest since the mark.
since_mark()
{
	dmesg | awk -v mark="$mark" "
		index(\$0, mark) { seen = 1; next }
		!seen || !/dmatest:/ { next }
		$1"
}

# dmatest_start CHANNELS [PARAMETER...]: CHANNELS is a pattern.
dmatest_start()
{
	pattern=$1
	shift
	mark
	[ -d $params ] || modprobe dmatest
	for set in iterations=10 timeout=60000 threads_per_chan=1 polled=0 \
			norandom=0 test_buf_size=16384 "$@"; do
		echo "${set#*=}" >"$params/${set%%=*}"
	done
	# shellcheck disable=SC2231 # the argument is a pattern
	for path in $devices/dmasim.*/dma/$pattern; do
		echo "${path##*/}" >$params/channel
	done
	echo 1 >$params/run
}

# Succeeds if each started thread has reported its result.
dmatest_ended()
{
	since_mark '
		/dmatest: Started / {
			for (i = 1; i < NF; i++)
				if ($i == "Started")
					started += $(i + 1)
		}
		/: summary / { ended++ }
		END { exit ended < started }'
}

# Read the log first, not "run". A read of "run" looks at running threads, then at
# starting threads, and stops threads that start in between. After all results are
# in the log, the read waits for the end of all threads and releases the channels.
dmatest_end()
{
	tries=300
	while [ $tries -gt 0 ] && ! dmatest_ended; do
		tries=$((tries - 1))
		sleep 0.1
	done
	while read -r running <$params/run && [ "$running" = Y ]; do
		sleep 0.1
	done
}

# dmatest_result NAME SUMMARIES FAILURES [MESSAGE]
# Expect SUMMARIES threads that finished their tests, with FAILURES failures in sum,
# each with MESSAGE.
dmatest_result()
{
	read -r iterations <$params/iterations
	since_mark "
		{ lines = lines \"# \" \$0 \"\\n\" }
		/: summary $iterations tests, / {
			threads++
			for (i = 2; i <= NF; i++)
				if (\$i == \"failures\")
					sum += \$(i - 1)
		}
		/result #/ && index(\$0, \"'$4\") { named++ }
		END {
			if (threads == $2 && sum == $3 && named + 0 == $3)
				exit 0
			printf \"%s\", lines
			exit 1
		}"
	result $? "$1"
}

# dmatest_passes NAME CHANNELS SUMMARIES [PARAMETER...]
dmatest_passes()
{
	name=$1 channels=$2 threads=$3
	shift 3
	dmatest_start "$channels" "$@"
	dmatest_end
	dmatest_result "$name" "$threads" 0
}

# dmatest_fault FAULT MESSAGE [TIMEOUT_MS]: make the second of two descriptors fail.
dmatest_fault()
{
	echo 2 >"$faults/chan0/$1_nth"
	dmatest_start '*chan0' iterations=2 timeout="${3:-60000}"
	dmatest_end
	dmatest_result "fault $1" 1 1 "$2"
}

# unit_tests NAME
unit_tests()
{
	rmmod dmatest
	modprobe dmasim_test
	report=$(cat /sys/kernel/debug/kunit/migrate_dmasim*/results)
	rmmod dmasim_test
	[ "$(echo "$report" | grep -c '^ok ')" -eq 2 ]
	status=$?
	if grep -qw swiotlb=force /proc/cmdline; then
		echo "$report" | grep -q ' ok .*needs_sync$' || status=1
	fi
	[ $status -eq 0 ] || echo "$report" | sed 's/^/# /'
	result $status "$1: unit tests"
}

# on_node DEVICE NODE
on_node()
{
	[ "$(cat "$devices/$1/numa_node")" -eq "$2" ]
	result $? "$1 is on node $2"
}

if [ ! -d /sys/kernel/debug/kunit ]; then
	echo "1..0 # SKIP needs KUnit, and kunit.enable=1"
	exit 4
fi
echo "TAP version 13"

load channels=2 nodes=0
on_node dmasim.0 0
dmatest_passes "shared: dmatest" '*' 4 threads_per_chan=2
dmatest_passes "shared: dmatest polls" '*' 2 polled=1
unit_tests "shared"

dmatest_fault fail "completion error status"
dmatest_fault refuse "prep error"
# A host that stops the guest for seconds must not let the good descriptor time out.
dmatest_fault stall "test timed out" 5000
echo 15000 >$faults/chan0/late_ms
dmatest_fault late "test timed out" 5000
dmatest_fault lose_irq "test timed out" 5000
dmatest_passes "shared: dmatest after faults" '*' 2

# The device vanishes during a test: all later descriptors fail at once.
echo 200000 >$faults/chan0/latency_us
dmatest_start '*chan0' iterations=150
! rmmod dmasim 2>/dev/null
result $? "not removed while it is in use"
echo 1 >$faults/vanish
dmatest_end
# dmatest would otherwise look up channels that no longer exist.
rmmod dmatest
since_mark "/result #.*'prep error/ { found = 1 } END { exit !found }"
result $? "vanished: dmatest fails"
[ ! -d $devices/dmasim.0/dma ] || [ -z "$(ls $devices/dmasim.0/dma)" ]
result $? "vanished: no channels"
echo dmasim.0 >/sys/bus/platform/drivers/dmasim/unbind
echo dmasim.0 >/sys/bus/platform/drivers/dmasim/bind
dmatest_passes "bound again: dmatest" '*' 2
unload "shared"

load devices=2 nodes=1,0 channels=2 private=1 out_of_order=1 \
	bandwidth_mbps=200 latency_us=100
on_node dmasim.0 1
on_node dmasim.1 0
dmatest_passes "private, out of order: dmatest" '*' 8 threads_per_chan=2
unit_tests "private, out of order"
unload "private, out of order"

load channels=2 descriptors=1 max_seg_bytes=4096 copy_align=3 address_bits=32 \
	can_terminate=0
dmatest_passes "narrow: dmatest" '*' 2 test_buf_size=4096
unit_tests "narrow"
unload "narrow"

load channels=2 cpu=0
dmatest_passes "a CPU of its own: dmatest" '*' 4 threads_per_chan=2
unit_tests "a CPU of its own"
unload "a CPU of its own"

load channels=2 cpu=0 coalesce_us=300
dmatest_passes "coalescing: dmatest" '*' 4 threads_per_chan=2
dmatest_passes "coalescing: dmatest polls" '*' 2 polled=1
unit_tests "coalescing"
unload "coalescing"

! modprobe dmasim cpu=100000 2>/dev/null
result $? "a CPU that is not there is refused"
! modprobe dmasim channels=1000 2>/dev/null
result $? "too many channels are refused"

echo "1..$nr"
exit $failed
