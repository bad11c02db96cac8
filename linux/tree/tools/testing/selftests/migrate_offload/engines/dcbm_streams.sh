#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
#
# Unit tests of dcbm, which copies batches side by side for several tasks. They
# run on simulated channels that complete in order, and on others that do not.
#
# The unit tests need kunit.enable=1 on the kernel command line.

dcbm=/sys/module/dcbm
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

# unit_tests NAME [PARAMETER...]: load dmasim with the parameters, and run the tests.
unit_tests()
{
	name=$1
	shift
	modprobe dmasim channels=4 "$@" || echo "# dmasim $* cannot be loaded"
	modprobe dcbm cpu_share=0
	echo 1 >$dcbm/offloading
	modprobe dcbm_stream_test
	report=$(cat /sys/kernel/debug/kunit/migrate_dcbm_streams/results)
	rmmod dcbm_stream_test
	echo "$report" | grep -q '^ok '
	status=$?
	# With enough descriptors, this test must not be skipped.
	case "$*" in
	*descriptors=512*)
		echo "$report" | grep -q ' ok .*two_windows$' || status=1 ;;
	esac
	[ $status -eq 0 ] || echo "$report" | sed 's/^/# /'
	result $status "$name: unit tests"
	echo none >/sys/kernel/mm/migrate_offload/engine
	[ "$(cat $dcbm/held_folios_now)" -eq 0 ]
	result $? "$name: nothing is held"
	rmmod dcbm dmasim
	result $? "$name: removed"
}

if [ ! -d /sys/kernel/debug/kunit ]; then
	echo "1..0 # SKIP needs KUnit, and kunit.enable=1"
	exit 4
fi
echo "TAP version 13"
unit_tests "in order"
unit_tests "out of order" out_of_order=1
unit_tests "narrow" descriptors=4 max_seg_bytes=12288
unit_tests "on a CPU of its own" cpu=1 descriptors=512 coalesce_us=300
echo "1..$nr"
exit $failed
