# SPDX-License-Identifier: GPL-2.0-only
"""Measures what docs/results/compare.md shows, in half an hour on an idle host.

    python3 -m helpers.compare_results FOLDER [PROGRAM...]

Each program gets a file in FOLDER, with a line for each pressure and kernel.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Any

from helpers import kernels
from pageferry import output, paths
from pageferry.bench import build
from pageferry.bench.disturbance import TOLERABLE, Disturbance
from pageferry.vm.run import VmRequest, run_vm

TOPOLOGY = "tiered"
ROUNDS = 5
# Under emulation Redis takes five seconds for so many keys and requests.
COMMANDS = {
    "gups": ("gups", "--seconds", "5"),
    "embed": ("embed", "--seconds", "5"),
    "redis": ("redis.sh", "32768", "10000"),
}
PRESSURES = ("move", "demote", "promote", "both", "compaction")
KERNELS = ("kernel_vanilla", "kernel_vm")


def measure(folder: Path, program: str, pressure: str, kernel: str) -> dict[str, Any]:
    """Boot a machine, and compare there; the command has no path of this machine."""
    built, name, *rest = kernels.build(kernel), *COMMANDS[program]
    ours = () if built.vanilla else ("--engines", "none,mtcopy")
    words = ("--json", "--rounds", str(ROUNDS), "--pressure", pressure, *ours)
    tool = (sys.executable, "-m", "pageferry", "compare", *words, "--", name, *rest)
    others = Disturbance()
    done = run_vm(
        VmRequest(
            command=("sh", "-c", f'PATH={folder}:$PATH exec "$@"', "sh", *tool),
            image=built.image,
            modules=built.modules,
            topology=TOPOLOGY,
            insert=() if built.vanilla else ("mtcopy",),
            timeout_s=1800.0,
            environment={"PYTHONPATH": str(paths.repo_root() / "src")},
        )
    )
    if done.status:
        raise SystemExit(f"{program}, {pressure}, {kernel}: {done.stderr}")
    said: dict[str, Any] = json.loads(done.stdout)
    load = others.share()
    where = {"topology": TOPOLOGY, "accel": done.accel, "host_other_load": load}
    return {**said, "machine": {**said["machine"], **where}}


def main() -> None:
    """Measure, and keep each document as soon as it is there."""
    top = Path(sys.argv[1])
    top.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=paths.make_cache_dir("compare")) as folder:
        for path in (*build.build().iterdir(), paths.repo_root() / "bench/redis.sh"):
            shutil.copy2(path, folder)
        for program in sys.argv[2:] or COMMANDS:
            target = top / f"compare-{program}.jsonl"
            target.write_text("")
            for pressure in PRESSURES:
                for kernel in KERNELS:
                    said = measure(Path(folder), program, pressure, kernel)
                    load = said["machine"]["host_other_load"]
                    note = "" if (load or 0) <= TOLERABLE else ": repeat it"
                    where = f"{program}, {pressure}, {kernel}"
                    output.talk(f"{where}: other work took {load} of the CPUs{note}")
                    with target.open("a") as stream:
                        stream.write(json.dumps(said) + "\n")


if __name__ == "__main__":
    main()
