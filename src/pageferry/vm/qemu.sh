#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs QEMU for virtme-run, and writes the signal that killed QEMU to our port `state`.
# virtme-run does not report it.
# virtme-run gets SIGKILL when the tool ends. Then this shell ends, too, and after it QEMU.
if [ -z "$PAGEFERRY_BOUND" ]; then
	PAGEFERRY_BOUND=1 exec setpriv --pdeathsig KILL -- "$0" "$@"
fi
setpriv --pdeathsig KILL -- "$PAGEFERRY_QEMU" "$@"
status=$?
if [ $status -gt 128 ] && [ -n "$PAGEFERRY_STATE" ]; then
	echo "killed $((status - 128))" >"$PAGEFERRY_STATE"
fi
exit $status
