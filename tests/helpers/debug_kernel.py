# SPDX-License-Identifier: GPL-2.0-only
"""One boot of the debug kernel, with all that can share it.

It takes minutes, and hardly more than one of the host's CPUs. So it can be begun
ahead, in a process of its own, while tests run that need no machine:
    python3 -m helpers.debug_kernel FILE
"""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from helpers import guests
from pageferry.kernel.build import BuildRequest, BuiltKernel, build_kernel

ROOT = Path(__file__).resolve().parents[2]
# For a machine to be taken down.
_STOP_S = 30

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


def build() -> BuiltKernel:
    """KUnit, the misbehaving engine, KASAN, lockdep and all the other checks."""
    return build_kernel(
        BuildRequest(configs=("vm", "debug-kasan", "debug-lockdep", "test"))
    )


def _run() -> guests.Steps:
    kernel = build()
    words = ("kunit.enable=1", "kunit.filter_glob=migrate_*")
    return guests.boot_once(kernel, _STEPS, words=words)


class _Ahead:
    """The process that was started, if any, and where it leaves what it saw."""

    process: subprocess.Popen[bytes] | None = None
    folder: tempfile.TemporaryDirectory[str] | None = None


def start() -> None:
    """Begin now; steps() then waits for it."""
    folder = tempfile.TemporaryDirectory(prefix="pageferry-debug-run-")
    _Ahead.folder = folder
    here = Path(folder.name)
    with (here / "log").open("wb") as log:
        _Ahead.process = subprocess.Popen(
            [sys.executable, "-m", "helpers.debug_kernel", str(here / "steps")],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}"},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            # A Ctrl-C is for us, and stop() then sees to it.
            start_new_session=True,
        )


def steps() -> guests.Steps:
    """Give what the guest said, now or when it is done."""
    process, folder = _Ahead.process, _Ahead.folder
    if process is None or folder is None:
        return _run()
    code = process.wait()
    here = Path(folder.name)
    assert code == 0, f"exit code {code}\n{(here / 'log').read_text()}"
    found = pickle.loads((here / "steps").read_bytes())
    assert isinstance(found, guests.Steps)
    return found


def stop() -> None:
    """End it, if it still runs, as Ctrl-C would."""
    process, folder = _Ahead.process, _Ahead.folder
    if process is not None and process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(_STOP_S)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
    if folder is not None:
        folder.cleanup()
    _Ahead.process = _Ahead.folder = None


if __name__ == "__main__":
    Path(sys.argv[1]).write_bytes(pickle.dumps(_run()))
