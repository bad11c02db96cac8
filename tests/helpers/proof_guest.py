# SPDX-License-Identifier: GPL-2.0-only
"""Runs in the guest of tests/packages/test_install.py, one stage for each boot.

    proof_guest.py STAGE

The guest is Debian 13 with Python, and without any library of the tests. A step is a
command. Its output and its exit status go to files, which the host reads.
"""

from __future__ import annotations

import ctypes
import hashlib
import json
import mmap
import os
import random
import re
import shutil
import stat
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

TOP = Path("/mnt/proof")
RESULTS = TOP / "results"
# The user's files of the tool go to memory: a package does not own them.
ENVIRONMENT = {
    "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
    "LC_ALL": "C.UTF-8",
    "DEBIAN_FRONTEND": "noninteractive",
    "HOME": str(TOP / "home"),
    "XDG_CACHE_HOME": str(TOP / "cache"),
    "XDG_STATE_HOME": str(TOP / "state"),
}
SHOWN_LINES = 12
# The exit status of a shell for a program that does not exist.
NOT_FOUND = 127

# --- steps --------------------------------------------------------------------


def say(text: str) -> None:
    """Print to the serial console."""
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


def step(name: str, *argv: str) -> int:
    """Run a command; keep its output and its exit status under the step's name."""
    say(f"proof: {name}: {' '.join(argv)}")
    with (
        (RESULTS / f"{name}.out").open("wb") as out,
        (RESULTS / f"{name}.err").open("wb") as err,
    ):
        try:
            status = subprocess.run(
                argv,
                env=ENVIRONMENT,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                check=False,
            ).returncode
        except OSError as error:
            err.write(f"{argv[0]}: {error.strerror}\n".encode())
            status = NOT_FOUND
    keep(f"{name}.status", str(status))
    for kind in ("out", "err"):
        text = (RESULTS / f"{name}.{kind}").read_text(errors="replace")
        for line in text.splitlines()[-SHOWN_LINES:]:
            say(f"    {line}")
    say(f"proof: {name}: exit status {status}")
    return status


def keep(name: str, text: str) -> None:
    """Write a file of the results."""
    (RESULTS / name).write_text(text)


# --- files --------------------------------------------------------------------


def inventory(root: Path) -> dict[str, str]:
    """Describe all files of a file system, without those mounted below it."""
    found: dict[str, str] = {}
    device = root.stat().st_dev
    for folder, below, files in os.walk(root):
        # A mount point has the device of the other file system.
        below[:] = [n for n in below if device_of(Path(folder, n)) == device]
        for name in (*below, *files):
            path = Path(folder, name)
            try:
                found[f"/{path.relative_to(root)}"] = describe(path)
            except FileNotFoundError:
                continue  # A service removed the file meanwhile.
    return found


def device_of(path: Path) -> int | None:
    """Return the device of a file, or None if the file has gone."""
    try:
        return path.lstat().st_dev
    except FileNotFoundError:
        return None


def describe(path: Path) -> str:
    """Return type, permissions, owner and content of a file."""
    status = path.lstat()
    text = f"{stat.filemode(status.st_mode)} {status.st_uid}:{status.st_gid}"
    if stat.S_ISLNK(status.st_mode):
        return f"{text} -> {path.readlink()}"
    if stat.S_ISREG(status.st_mode):
        with path.open("rb") as stream:
            return f"{text} {hashlib.file_digest(stream, 'sha256').hexdigest()}"
    return text


def list_everything() -> None:
    """Keep the list of all files, and the states of all packages."""
    say("proof: list all files")
    keep("files.json", json.dumps(inventory(Path("/"))))
    form = "${Package} ${Version} ${db:Status-Abbrev}\n"
    step("packages", "dpkg-query", "-W", "-f", form)


# --- memory -------------------------------------------------------------------

SYS_MOVE_PAGES = 279
MPOL_MF_MOVE = 2
MOVED_BYTES = 32 << 20
MOVE_TRIES = 20


def move_pages(addresses: list[int], node: int) -> list[int]:
    """Move pages of this process; returns the node of each page."""
    count = len(addresses)
    pages = (ctypes.c_void_p * count)(*addresses)
    nodes = (ctypes.c_int * count)(*[node] * count)
    where = (ctypes.c_int * count)(*[-1] * count)
    libc = ctypes.CDLL(None, use_errno=True)
    libc.syscall.restype = ctypes.c_long
    words = [SYS_MOVE_PAGES, 0, count]
    code = libc.syscall(
        *map(ctypes.c_long, words), pages, nodes, where, ctypes.c_long(MPOL_MF_MOVE)
    )
    if code < 0:
        raise OSError(ctypes.get_errno(), "move_pages")
    return list(where)


def move_all(pages: list[int], node: int) -> dict[str, object]:
    """Move pages; returns how many arrived, and the first answers for the others.

    Linux answers -EBUSY for the second page of each huge page: the call has isolated the
    folio for the first one, and then moves the folio. So ask again.
    """
    left = pages
    refused: list[int] = []
    for tried in range(MOVE_TRIES):
        answers = move_pages(left, node)
        stayed = [at for at, answer in enumerate(answers) if answer != node]
        refused = refused if tried else [answers[at] for at in stayed]
        left = [left[at] for at in stayed]
        if not left:
            break
        time.sleep(0.1)
    return {"there": len(pages) - len(left), "refused": refused[:SHOWN_LINES]}


def move() -> int:
    """Move memory between the nodes, and compare it with a copy each time."""
    # The memory begins on the node of CPU 0.
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {0})
    content = random.Random(1).randbytes(MOVED_BYTES)
    memory = mmap.mmap(-1, MOVED_BYTES, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    memory[:] = content
    os.sched_setaffinity(0, allowed)
    start = ctypes.addressof(ctypes.c_char.from_buffer(memory))
    pages = list(range(start, start + MOVED_BYTES, mmap.PAGESIZE))
    rounds = []
    for node in (1, 0, 1):
        found = move_all(pages, node)
        rounds.append({"node": node, **found, "intact": memory[:] == content})
    say(json.dumps({"pages": len(pages), "rounds": rounds}))
    return 0


# --- stages -------------------------------------------------------------------


def first_of_menu(menu: str) -> str:
    """Return the release of the kernel that the first entry of GRUB's menu boots."""
    found = re.search(r"(?m)^\s*linux\s+\S*/vmlinuz-(\S+)", menu)
    return found[1] if found else ""


def loader() -> None:
    """Install GRUB, from a boot with QEMU's own loader."""
    serials = Path("/sys/block").glob("vd*/serial")
    texts = {file.read_text().strip(): file.parent.name for file in serials}
    step("grub-install", "grub-install", "--target=i386-pc", f"/dev/{texts['root']}")
    step("update-grub", "update-grub")


def install() -> None:
    """On Debian's kernel: list all files, then install both packages."""
    step("kernel", "uname", "-r")
    list_everything()
    packages = sorted(map(str, (TOP / "packages").glob("*.deb")))
    step("install", "apt-get", "install", "-y", *packages)
    step("installed", "dpkg-query", "-W", "pageferry", "linux-image-*+pageferry")
    menu = Path("/boot/grub/grub.cfg").read_text()
    keep("first.txt", first_of_menu(menu))


BALANCE = """\
source = "recorded"
record = "/etc/pageferry/load.csv"
[bandwidth]
0 = 72.0
1 = 26.0
[[process]]
name = "systemd"
include_children = false
"""
SERVICE_STARTS_S = 120


def serve() -> None:
    """Run the balancer by its unit, with all that the unit protects."""
    folder = Path("/etc/pageferry")
    folder.mkdir()
    (folder / "balance.toml").write_text(BALANCE)
    (folder / "load.csv").write_text("time_s,demand\n0,10e9\n")
    step("serve", "systemctl", "start", "pageferry-balance")
    await_line("serve-log", "pageferry-balance", "stays on node")
    step("serve-active", "systemctl", "is-active", "pageferry-balance")
    step("serve-stop", "systemctl", "stop", "pageferry-balance")
    step("serve-result", "systemctl", "show", "-p", "Result", "pageferry-balance")
    shutil.rmtree(folder)


TIERS = """\
tiers = [[0], [1]]
[[process]]
name = "systemd"
include_children = false
"""


def serve_tiers() -> None:
    """Kill the service of the tiers, so that its unit stops DAMON."""
    folder = Path("/etc/pageferry")
    folder.mkdir()
    (folder / "tier.toml").write_text(TIERS)
    step("tier", "systemctl", "start", "pageferry-tier")
    await_line("tier-log", "pageferry-tier", "tiers 0 > 1")
    step("tier-kill", "systemctl", "kill", "-s", "KILL", "pageferry-tier")
    await_line("tier-log", "pageferry-tier", "stopped 1 kdamonds")
    # The unit would start it again.
    step("tier-stop", "systemctl", "stop", "pageferry-tier")
    step("tier-left", "cat", "/sys/kernel/mm/damon/admin/kdamonds/nr_kdamonds")
    shutil.rmtree(folder)


def await_line(name: str, unit: str, text: str) -> None:
    """Wait until the journal of a unit has a text."""
    for _ in range(SERVICE_STARTS_S):
        step(name, "journalctl", "-u", unit, "-o", "cat")
        if text in (RESULTS / f"{name}.out").read_text():
            return
        time.sleep(1)


def use() -> None:
    """On our kernel: move memory, switch the engine off, purge both packages."""
    step("kernel", "uname", "-r")
    step("version", "pageferry", "--version")
    step("doctor", "pageferry", "doctor", "--json")
    step("status-boot", "pageferry", "status", "--json")
    step("modprobe", "modprobe", "mtcopy")
    step("engine", "pageferry", "engine", "set", "mtcopy", "--json")
    # Otherwise the kernel may find that one CPU is faster on an emulated machine.
    always = "/sys/kernel/debug/migrate_offload/engine_always"
    step("always", "sh", "-c", f"echo 1 >{always}")
    step("move", "python3", __file__, "move")
    step("status-moved", "pageferry", "status", "--json")
    sizes = ("--sizes", "4K,64K,2M", "--total", "32M", "--rounds", "2")
    bench = ("pageferry", "bench", "move-pages", "--live", "--json")
    step("bench", *bench, "--engines", "mtcopy", *sizes)
    step("status-bench", "pageferry", "status", "--json")
    step("status", "pageferry", "status")
    step("off", "pageferry", "off", "--json")
    step("unload", "modprobe", "-r", "mtcopy")
    serve()
    serve_tiers()
    step("purge", "apt-get", "purge", "-y", "pageferry", "linux-image-*+pageferry")


def after() -> None:
    """On Debian's kernel again: list all files."""
    step("kernel", "uname", "-r")
    list_everything()


STAGES: dict[str, Callable[[], None]] = {
    "loader": loader,
    "install": install,
    "use": use,
    "after": after,
}


def main(arguments: list[str]) -> int:
    """Run one stage, or the program that moves memory."""
    if arguments == ["move"]:
        return move()
    RESULTS.mkdir(parents=True, exist_ok=True)
    STAGES[arguments[0]]()
    keep("ended.txt", arguments[0])
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
