# SPDX-License-Identifier: GPL-2.0-only
"""`python -m pageferry`."""

from pageferry.cli import main

if __name__ == "__main__":
    raise SystemExit(main())
