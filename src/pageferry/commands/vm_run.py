# SPDX-License-Identifier: GPL-2.0-only
"""`pageferry vm run`."""

from __future__ import annotations

import argparse
import re
import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from pageferry import output
from pageferry.bench import build
from pageferry.commands.kernel_build import add_kernel_arguments, make_request
from pageferry.errors import usage_error
from pageferry.kernel.build import build_kernel
from pageferry.units import parse_seconds
from pageferry.vm import installed, topology
from pageferry.vm.run import BOOT_TIMEOUT_S, VmOutcome, VmRequest, run_vm

if TYPE_CHECKING:
    from pageferry.cli import Subparsers

DESCRIPTION = """\
Boot a kernel in a virtual machine and run CMD in it. The guest mounts the host's
root read-only, except for directories named with --rw. /tmp and /var/tmp are
writable, and vanish with the machine. The kernel is the patched one, built first
if anything changed, or the image that --kernel names.

A topology of another architecture does not mount the host's root, and gets a
kernel of its own. CMD is then a static program. The guest's initramfs contains
CMD, busybox, the kernel's modules, the programs of bench/ and the files that
--carry names, each at its path on the host.

Afterwards the tool searches the kernel log for BUG, WARNING, Oops, lockdep, RCU,
KASAN and the like. A match makes the run fail, whatever CMD returned.
"""

EPILOG = """\
examples:
  pageferry vm run -- numactl -H
  pageferry vm run --topology tiered --module mtcopy -- ./my-test --loops 3
  pageferry vm run --config debug-kasan --topology debug -- ./my-test
  pageferry vm run --topology versal --module dmatest -- sh -c 'cat /proc/interrupts'
  pageferry vm run --topology list
  pageferry vm run --topology my-server.toml -- numactl -H
  pageferry vm run --kernel /boot/vmlinuz-6.1.0-56-amd64 -- pageferry doctor
"""


def add_parser(sub: Subparsers) -> None:
    """Add the parser."""
    parser = sub.add_parser(
        "run",
        help="boot a kernel and run a command in it",
        description=DESCRIPTION,
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s [options] -- CMD [ARG...]",
    )
    add = parser.add_argument
    add(
        "--topology",
        default="two-node",
        metavar="NAME",
        help="machine, or a .toml file (default: %(default)s; `list` shows them)",
    )
    add(
        "--kernel",
        type=Path,
        metavar="IMAGE",
        help="boot this image, also one of your distribution",
    )
    add_kernel_arguments(parser)
    add(
        "--timeout",
        default="30m",
        metavar="S",
        help="end CMD after this time, exit 124 (default: %(default)s)",
    )
    add(
        "--boot-timeout",
        default=f"{BOOT_TIMEOUT_S:.0f}",
        metavar="S",
        help="end a boot after this time, exit 5 (default: %(default)s s)",
    )
    add("--icount", action="store_true", help="guest time counts instructions (TCG)")
    add(
        "--module",
        action="append",
        default=[],
        metavar="NAME",
        help="load a module and its dependencies before CMD",
    )
    add(
        "--append",
        action="append",
        default=[],
        metavar="ARGS",
        help="add words to the kernel's command line",
    )
    add(
        "--rw",
        action="append",
        default=[],
        type=Path,
        metavar="DIR",
        help="let CMD write to this directory of the host",
    )
    add(
        "--carry",
        action="append",
        default=[],
        type=Path,
        metavar="FILE",
        help="add a file to a guest that does not mount the host's root",
    )
    add(
        "--allow-klog",
        action="append",
        default=[],
        metavar="REGEX",
        help="ignore this match in the kernel log",
    )
    add("--accel", choices=("kvm", "tcg"), help="default: KVM if it works")
    add("--preallocate", action="store_true", help="touch the guest's memory first")
    add("--json", action="store_true", help="print exit_code, stdout, findings, ...")
    parser.set_defaults(run=run, takes_command=True)


def list_topologies(as_json: bool) -> int:
    """Print all topologies."""
    known = topology.available()
    if as_json:
        rows = [
            {"name": n, "description": t.description, "arch": t.arch}
            for n, t in known.items()
        ]
        output.answer_json({"topologies": rows})
    else:
        lines = [[name, t.arch, t.description] for name, t in known.items()]
        output.answer(output.table(["topology", "arch", "what"], lines))
    return 0


def run(args: argparse.Namespace) -> int:
    """Boot and run."""
    if args.topology == "list":
        return list_topologies(args.json)
    machine = topology.load(args.topology)
    if not args.command:
        raise usage_error(
            "no command: write it after --", hint="pageferry vm run --help"
        )
    timeout_s = parse_seconds(args.timeout)
    boot_timeout_s = parse_seconds(args.boot_timeout)
    for pattern in args.allow_klog:
        _check_pattern(pattern)
    for directory in args.rw:
        if not directory.is_dir():
            raise usage_error("--rw needs a directory", directory)
    append = tuple(word for words in args.append for word in _words(words))
    carry = _carried(args, machine)
    image, modules = _find_kernel(args, machine)
    request = VmRequest(
        command=tuple(args.command),
        image=image,
        modules=modules,
        topology=args.topology,
        timeout_s=timeout_s,
        boot_timeout_s=boot_timeout_s,
        icount=args.icount,
        insert=tuple(args.module),
        append=append,
        rw=tuple(directory.resolve() for directory in args.rw),
        carry=carry,
        allow_klog=tuple(args.allow_klog),
        accel=args.accel,
        preallocate=args.preallocate,
        stream=not args.json,
    )
    outcome = run_vm(request)
    if args.json:
        output.answer_json(outcome.as_json())
    _report(outcome, timeout_s)
    return outcome.status


def _check_pattern(pattern: str) -> None:
    try:
        re.compile(pattern)
    except re.error as error:
        raise usage_error(f"not a regular expression: {error}", pattern) from error


def _words(text: str) -> list[str]:
    try:
        return shlex.split(text)
    except ValueError as error:
        raise usage_error(f"--append: {error}", text) from error


def _carried(args: argparse.Namespace, machine: topology.Topology) -> tuple[Path, ...]:
    """List the files of a guest that does not mount the host's root."""
    arch = machine.architecture
    if args.arch not in (None, arch.name):
        raise usage_error(f"topology {args.topology} is {arch.name}", args.arch)
    if machine.sees_host:
        if args.carry:
            raise usage_error("--carry: this guest sees the host's root", args.carry[0])
        return ()
    programs = build.build(arch)
    ours = (programs / name for name in build.programs())
    return (*(path.absolute() for path in args.carry), *ours)


def _find_kernel(
    args: argparse.Namespace, machine: topology.Topology
) -> tuple[Path, Path | None]:
    if args.kernel is None:
        built = build_kernel(make_request(args, machine.architecture))
        return built.image, built.modules
    image = args.kernel.resolve()
    if not image.is_file():
        raise usage_error("no such kernel image", args.kernel, "pageferry kernel build")
    if installed.is_installed(image):
        return image, installed.modules_of(image)
    # The image is BUILD/arch/x86/boot/bzImage; other architectures use that depth.
    staged = (
        image.parents[3] / "modroot/lib/modules" if len(image.parents) > 3 else None
    )
    found = sorted(staged.iterdir()) if staged is not None and staged.is_dir() else []
    return image, found[0] if len(found) == 1 else None


def _report(outcome: VmOutcome, timeout_s: float) -> None:
    """Explain a failed run on stderr."""
    if outcome.timed_out:
        output.talk(f"pageferry: the command was still running after {timeout_s:g} s")
    elif outcome.exit_code is None:
        output.talk(outcome.serial_tail())
        output.talk("pageferry: the guest died before the command ended")
    for line in outcome.findings:
        output.talk(f"pageferry: kernel log: {line}")
    if outcome.findings or outcome.timed_out or outcome.exit_code is None:
        output.talk(f"  see: {outcome.serial_log}")
