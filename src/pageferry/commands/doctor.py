# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry doctor`: list the abilities of this machine and this kernel."""

from __future__ import annotations

import argparse
import os
import shutil
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output, paths, proc
from pageferry.balance import bandwidth, perf, sources
from pageferry.commands import ABOUT
from pageferry.damon.admin import Admin
from pageferry.dma import advice
from pageferry.errors import ExitCode
from pageferry.interleave.sessions import Store
from pageferry.kernel import bases, origin
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import Node, read_nodes
from pageferry.sysfs.offload import Offload
from pageferry.units import format_rate, format_size
from pageferry.vm import accel

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

# A kernel build may need this much disk.
_BUILD_BYTES = 8 << 30


@dataclass(frozen=True)
class Check:
    """A line of the table."""

    name: str
    ok: bool
    detail: str
    # `kernel build` and `vm run` need it.
    needed: bool = False
    hint: str = ""
    # The hint is the next step, also if the check passed.
    always_hint: bool = False


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    about = ABOUT["doctor"]
    parser = sub.add_parser(
        "doctor",
        help=about,
        description=f"{about}. Exits with 3 if it cannot build and boot kernels.",
    )
    parser.add_argument("--json", action="store_true")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run all checks, and print them."""
    files = Files()
    checks = [*_machine_checks(), *_source_checks()]
    engines = advice.survey(files)
    checks += [*_kernel_checks(files), *dma_checks(engines, files)]
    checks += _balance_checks(files)
    healthy = all(check.ok for check in checks if check.needed)
    if args.json:
        rows = [
            {"name": c.name, "ok": c.ok, "detail": c.detail, "hint": c.hint}
            for c in checks
        ]
        output.answer_json(
            {
                "can_build_and_boot": healthy,
                "checks": rows,
                "dma_engines": [engine.as_json() for engine in engines],
            }
        )
    else:
        rows_text = [[c.name, "yes" if c.ok else "no", c.detail] for c in checks]
        output.answer(output.table(["what", "ok", "detail"], rows_text))
        for check in checks:
            if check.hint and (not check.ok or check.always_hint):
                output.talk(f"  {check.name}: {check.hint}")
    return int(ExitCode.OK if healthy else ExitCode.UNSUPPORTED)


def _machine_checks() -> list[Check]:
    cache = paths.cache_dir()
    above = next(p for p in (cache, *cache.parents) if p.exists())
    free = shutil.disk_usage(above).free
    qemu = shutil.which("qemu-system-x86_64", path=paths.venv_path())
    version = (
        proc.capture([qemu, "--version"]).stdout.partition("\n")[0] if qemu else ""
    )
    missing = _missing_packages()
    apt = f"apt-get install {' '.join(missing)}"
    return [
        Check("packages", not missing, ", ".join(missing) or "all there", True, apt),
        Check(
            "QEMU",
            bool(qemu),
            version or "not found",
            True,
            "apt-get install qemu-system-x86",
        ),
        _kvm_check(),
        Check(
            "disk",
            free >= _BUILD_BYTES,
            f"{format_size(free)} free for {cache}",
            True,
            "free some space, or set XDG_CACHE_HOME to a larger disk",
        ),
        Check(
            "root",
            os.geteuid() == 0,
            f"uid {os.geteuid()}",
            hint="engine set, off, interleave and balance need root",
        ),
    ]


def _source_checks() -> list[Check]:
    linux = paths.repo_root() / "linux"
    found = {n: origin.at_hand(bases.read(linux, n)) for n in bases.names(linux)}
    return [
        Check(f"Linux {name}", bool(path), str(path or "its first build downloads it"))
        for name, path in found.items()
    ]


def _missing_packages() -> list[str]:
    if shutil.which("dpkg-query") is None:
        return []
    listing = paths.repo_root() / "requirements" / "apt.txt"
    lines = listing.read_text().splitlines()
    wanted = [line for line in lines if line and not line.startswith("#")]
    query = ["dpkg-query", "-W", "-f", "${Package} ${db:Status-Status}\n", *wanted]
    answer = proc.capture(query).stdout.splitlines()
    installed = {line.split()[0] for line in answer if line.endswith(" installed")}
    return [name for name in wanted if name not in installed]


def _kvm_check() -> Check:
    if not Path("/dev/kvm").exists():
        return Check("KVM", False, "no /dev/kvm: guests run under TCG, slower")
    known = accel.known()
    detail = {
        None: "not tried yet; the first vm run finds out",
        accel.KVM: "a guest ran",
        accel.TCG: "/dev/kvm cannot run a guest: guests run under TCG, slower",
    }[known]
    return Check("KVM", known == accel.KVM, detail)


def _kernel_checks(files: Files) -> list[Check]:
    release = files.read_or("/proc/sys/kernel/osrelease", "unknown")
    offload = Offload(files)
    if offload.is_present():
        state = offload.read()
        engines = " ".join(state.available_engines)
        found = Check("batch copy", True, f"engine {state.engine}, there is: {engines}")
    else:
        detail = f"{release} lacks CONFIG_MIGRATION_COPY_OFFLOAD"
        found = Check(
            "batch copy",
            False,
            detail,
            hint="pageferry vm run -- COMMAND, or pageferry kernel package",
        )
    nodes = read_nodes(files)
    shown = "; ".join(_describe(node) for node in nodes)
    balancing = files.read_or("/proc/sys/kernel/numa_balancing", "")
    return [
        Check("kernel", True, release),
        found,
        Check(
            "nodes",
            len(nodes) > 1,
            shown or "no NUMA",
            hint="pages need a second node to move to: pageferry vm run has two",
        ),
        _damon_check(files),
        Check(
            "NUMA balancing off",
            balancing in ("", "0"),
            "not in this kernel" if balancing == "" else f"numa_balancing={balancing}",
            hint="NUMA balancing moves pages during measurements",
        ),
    ]


def _damon_check(files: Files) -> Check:
    admin = Admin(files, Store(files).slots())
    if not admin.is_present():
        detail = "lacks CONFIG_DAMON_SYSFS: interleave works from user space"
        return Check("DAMON", False, detail)
    # Only a write shows whether schemes have destinations.
    other = admin.others()
    return Check("DAMON", other is None, other or "no other program uses it")


def dma_checks(engines: Sequence[advice.Advice], files: Files) -> list[Check]:
    """List the DMA engines, or say that there is none."""
    if not engines:
        none = "none that can copy memory, and no channel in /sys/class/dma"
        # Other kernels have no engine to choose.
        hint = advice.NO_DEVICE if Offload(files).is_present() else ""
        return [Check("DMA engines", False, none, hint=hint)]
    return [
        Check(
            f"DMA engine {e.device.name}",
            e.usable,
            e.detail,
            hint=e.hint,
            always_hint=True,
        )
        for e in engines
    ]


def _balance_checks(files: Files) -> list[Check]:
    """List the sources of figures that `pageferry balance` finds."""
    rates = bandwidth.from_hmat(files)
    told = "; ".join(f"{node}: {format_rate(rate)}" for node, rate in rates.items())
    obstacles = {
        "perf": perf.obstacle(files),
        "resctrl": sources.resctrl_obstacle(files),
    }
    counted = {
        "perf": "counters of memory controllers: "
        + ", ".join(dict.fromkeys(device for device, _ in perf.events(files))),
        "resctrl": "memory bandwidth monitoring, by L3 cache",
    }
    return [
        Check(
            "bandwidth of nodes",
            bool(rates),
            f"HMAT: {told}" if rates else "no HMAT that knows all nodes",
            hint="pageferry balance --measure",
        ),
        *[
            Check(f"use by {name}", why is None, why or counted[name])
            for name, why in obstacles.items()
        ],
    ]


def _describe(node: Node) -> str:
    cpus = f"CPUs {node.cpus}" if node.cpus else "no CPUs"
    tier = "" if node.tier is None else f", tier {node.tier}"
    free = f"{format_size(node.free_bytes)} of {format_size(node.total_bytes)} free"
    return f"{node.number}: {cpus}, {free}{tier}"
