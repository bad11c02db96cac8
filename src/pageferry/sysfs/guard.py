# SPDX-License-Identifier: GPL-2.0-only
"""Takes back what a command changed, if SIGKILL ends that command.

The command holds the other end of stdin, and writes there when it has cleared up by
itself. This program imports nothing of the tool, so that it starts quickly.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import time
from pathlib import Path

_TRIES = 50
_WAIT_S = 0.1


def main() -> None:
    """Wait for the end of the command."""
    # The command decides about a signal to stop, and not this program.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    # A program of the command may hold the other end, too: its settings come back first.
    if sys.stdin.buffer.read():
        return
    changed = json.loads(sys.argv[1])
    for name, value in changed["settings"]:
        with contextlib.suppress(OSError):
            # A write of the same value may take effect, too.
            if Path(name).read_text().strip() != value:
                Path(name).write_text(value)
    if changed["cgroup"] is not None:
        _remove(Path(changed["cgroup"]))


def _remove(group: Path) -> None:
    """End the program, which may have no end of its own."""
    if group.exists():
        with contextlib.suppress(OSError):
            (group / "cgroup.kill").write_text("1")
    for _ in range(_TRIES):
        try:
            group.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            # Processes take a moment to vanish.
            time.sleep(_WAIT_S)


if __name__ == "__main__":
    main()
