#!/bin/sh
# SPDX-License-Identifier: GPL-2.0-only
# QEMU, for virtme-run, which does not tell how it ended: says on our port `state`
# which signal killed it.
"$PAGEFERRY_QEMU" "$@"
status=$?
if [ $status -gt 128 ] && [ -n "$PAGEFERRY_STATE" ]; then
	echo "killed $((status - 128))" >"$PAGEFERRY_STATE"
fi
exit $status
