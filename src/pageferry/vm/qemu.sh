#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# Runs QEMU for virtme-run, and writes the signal that killed QEMU to our port `state`.
# virtme-run does not report it.
setpriv --pdeathsig KILL -- "$PAGEFERRY_QEMU" "$@"
status=$?
if [ $status -gt 128 ] && [ -n "$PAGEFERRY_STATE" ]; then
	echo "killed $((status - 128))" >"$PAGEFERRY_STATE"
fi
exit $status
