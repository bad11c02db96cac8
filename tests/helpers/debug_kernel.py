# SPDX-License-Identifier: GPL-2.0-only
"""One boot of the debug kernel, with all that can share it.

It takes minutes, and hardly more than one of the host's CPUs. So it can be begun
ahead, in a process of its own, while tests run that need no machine:
    python3 -m helpers.debug_kernel FOLDER
"""

from __future__ import annotations

import pickle
import sys
from pathlib import Path

from helpers import ahead, guests, kernels

_HERE = "/sys/kernel/mm/migrate_offload"
_KUNIT = "/sys/kernel/debug/kunit"
_HAZARDS = "$(./hazards -l | cut -d' ' -f1 | grep -v unload)"
_STEPS = {
    # KUnit ran at boot; debugfs keeps what it reported.
    "kunit": f"ls {_KUNIT}",
    **{f"kunit {name}": f"cat {_KUNIT}/{name}/results" for name in guests.KUNIT_SUITES},
    "kunit again": (
        f"cd {_HERE} && echo cpu >engine && echo demotion >reasons\n"
        f"echo 1 >{_KUNIT}/migrate_offload/run\n"
        f"cat {_KUNIT}/migrate_offload/results engine reasons\n"
        "echo none >engine; echo all >reasons"
    ),
    "modules": "modprobe mtcopy && modprobe migrate_offload_test && echo loaded",
    "kselftest": "./migrate_offload",
    # An engine with a result per folio and no stream is what hazards use.
    "fallback": "./fallback -v posted -v stream -f streams",
    "damon": "./damon -T moves_while_written -v anon_64k -v anon_2m_by_ptes",
    # Last: they poison pages, and damage data where a rule is switched off.
    "hazards": f"./hazards {_HAZARDS}",
    "hazards of streams": f"./hazards -s {_HAZARDS}",
}


def _run() -> guests.Steps:
    words = ("kunit.enable=1", "kunit.filter_glob=migrate_*")
    return guests.boot_once(kernels.build("kernel_debug"), _STEPS, words=words)


def steps(started: ahead.Ahead | None) -> guests.Steps:
    """Give what the guest said, now or when it is done."""
    if started is None:
        return _run()
    found = pickle.loads((started.wait() / "steps").read_bytes())
    assert isinstance(found, guests.Steps)
    return found


if __name__ == "__main__":
    (Path(sys.argv[1]) / "steps").write_bytes(pickle.dumps(_run()))
