# SPDX-License-Identifier: GPL-2.0-only
"""Topologies, the kernel log, the guest's script: all parts that need no machine."""

from __future__ import annotations

import dataclasses
import lzma
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pageferry import paths
from pageferry.errors import ExitCode, PageferryError
from pageferry.units import GIB, MIB
from pageferry.vm import accel, guest, installed, klog, topology, virtme
from pageferry.vm import run as vm_run
from pageferry.vm.run import VmOutcome, VmRequest

COMPLAINTS = """\
WARNING: CPU: 1 PID: 77 at mm/migrate.c:1234 migrate_pages_batch+0x1/0x2
BUG: KASAN: slab-use-after-free in folio_migrate_copy+0x1/0x2
BUG: sleeping function called from invalid context at mm/util.c:1
kernel BUG at mm/rmap.c:12!
Oops: Oops: 0000 [#1] PREEMPT SMP KASAN
WARNING: possible circular locking dependency detected
WARNING: inconsistent lock state
WARNING: suspicious RCU usage
rcu: INFO: rcu_sched detected stalls on CPUs/tasks:
rcu: INFO: rcu_preempt self-detected stall on CPU
rcu: INFO: rcu_preempt detected expedited stalls on CPUs/tasks: { 1-.... }
INFO: task kworker/0:1:12 blocked for more than 120 seconds.
watchdog: BUG: soft lockup - CPU#0 stuck for 26s! [a:1]
BUG: workqueue lockup - pool cpus=0 node=0 flags=0x0 nice=0 stuck for 30s!
BUG: Bad page state in process a  pfn:1234
BUG: Bad rss-counter state mm:0 type:MM_ANONPAGES val:1
list_add corruption. prev->next should be next
page dumped because: VM_BUG_ON_FOLIO(folio_test_lru(folio))
general protection fault, probably for non-canonical address 0x1
Kernel panic - not syncing: Fatal exception
""".splitlines()
HARMLESS = """\
Linux version 6.12.117-pageferry (pageferry@pageferry) #1 SMP
Spectre V2 : WARNINGS are a thing of the past
ACPI: PM: Preparing to enter system sleep state S5
rcu: Hierarchical SRCU implementation.
Kernel command line: rcupdate.rcu_cpu_stall_timeout=120 brd.rd_nr=2
rcu: RCU CPU stall warnings timeout set to 120 (rcu_cpu_stall_timeout).
mtcopy: using at most 2 threads
Memory failure: 0x1234: recovery action for dirty LRU page: Recovered
debugfs: Directory 'x' with parent 'y' is there
[    0.300000] WARNING: CPU: 1 PID: 0 at arch/x86/kernel/smpboot.c:350 topology_sane.isra.0+0x62/0x70
""".splitlines()


@pytest.mark.parametrize("line", COMPLAINTS)
@pytest.mark.parametrize("stamp", ["", "[    1.234567] ", "[   12.345678][   T77] "])
def test_every_complaint_is_found(line: str, stamp: str) -> None:
    assert klog.findings([*HARMLESS, stamp + line]) == [line]


def test_an_ordinary_log_is_clean() -> None:
    assert klog.findings(HARMLESS) == []


def test_an_expected_complaint_hides_no_other() -> None:
    found = klog.findings(COMPLAINTS[:2], [r"WARNING: .*migrate_pages_batch"])
    assert found == COMPLAINTS[1:2]


def test_a_repeated_complaint_is_named_once() -> None:
    twice = ["[    1.000000] " + COMPLAINTS[0], "[    2.000000] " + COMPLAINTS[0]]
    assert klog.findings(twice) == COMPLAINTS[:1]


@pytest.mark.parametrize(
    "name", sorted(n for n, t in topology.available().items() if not t.fake_nodes)
)
def test_topologies_say_the_same_to_qemu_twice(name: str) -> None:
    machine = topology.load(name)
    argv = machine.qemu_args()
    backends = [word for word in argv if word.startswith("memory-backend-ram")]
    sizes = [int(re.search(r"size=(\d+)", word)[1]) for word in backends]  # type: ignore[index]
    hidden = sum(
        int(word.partition("=")[2].partition("M$")[0])
        for word in machine.kernel_words()
        if word.startswith("memmap=")
    )
    assert sum(sizes) == machine.memory_bytes + hidden * MIB
    boot, _, later = argv[argv.index("-m") + 1].partition(",slots=1,maxmem=")
    assert (later or boot) == f"{sum(sizes) // MIB}M"
    nodes = [word for word in argv if word.startswith("node,")]
    assert len(nodes) == max(machine.numbers) + 1


def test_what_the_named_topologies_promise() -> None:
    two_node = topology.load("two-node")
    assert [node.cpus for node in two_node.node] == ["0", "1"]
    tiered = topology.load("tiered").qemu_args()
    assert "hmat=on" in tiered
    assert any("target=1" in word and "latency=250" in word for word in tiered)
    assert not any("nodeid=1" in word and "cpus=" in word for word in tiered)
    cost = topology.load("cost")
    assert cost.icount and cost.cpus == 1 and cost.node[1].cpus is None
    # The same machine except for the tiers.
    tiers = topology.load("tiered-cost")
    assert tiers.icount and "hmat=on" in tiers.qemu_args()
    assert [(n.memory, n.cpus) for n in tiers.node] == [
        (n.memory, n.cpus) for n in cost.node
    ]
    for debug in ("debug", "debug-tiered"):
        assert topology.load(debug).memory_bytes == 1 * GIB
    assert "hmat=on" in topology.load("debug-tiered").qemu_args()
    assert "intel-iommu" in topology.load("iommu").qemu_args()
    assert "intel-iommu" not in topology.load("debug").qemu_args()


def test_memory_is_touched_first_only_where_asked() -> None:
    machine = topology.load("two-node")
    assert "prealloc" not in " ".join(machine.qemu_args())
    assert "prealloc=on" in " ".join(machine.qemu_args(preallocate=True))


def test_an_unknown_topology_lists_those_there_are() -> None:
    with pytest.raises(PageferryError) as caught:
        topology.load("../etc/passwd")
    assert caught.value.code == ExitCode.USAGE
    assert "two-node" in (caught.value.hint or "")


def test_a_topology_with_half_its_figures_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text(
        'description = "x"\ncpus = 1\n[[node]]\nmemory = "1G"\nlatency_ns = 5\n'
    )
    with pytest.raises(PageferryError, match="makes no sense"):
        topology._read(path)
    path.write_text('description = "x"\ncpus = 1\nnodes = []\n')
    with pytest.raises(PageferryError, match="cannot read"):
        topology._read(path)


def test_the_guest_has_no_fast_string_copies_under_emulation() -> None:
    assert "max,erms=off,fsrm=off" in accel.cpu_args(accel.TCG)
    counted = accel.cpu_args(accel.TCG, icount=True)
    assert "shift=0,sleep=off" in counted
    assert "rdrand=off" in " ".join(counted)
    assert accel.cpu_args(accel.KVM) == ["-accel", "kvm", "-cpu", "host"]


words = st.text(st.characters(codec="utf-8", exclude_characters="\0"), min_size=1)


@settings(max_examples=25)
@given(st.lists(words, min_size=1, max_size=4))
def test_a_command_arrives_word_for_word(command: list[str]) -> None:
    script = guest.run_script(
        ["printf", r"%s\0", *command],
        cwd=Path("/"),
        modules=None,
        insert=(),
        environment={},
    )
    # This test has neither a kernel log nor a host.
    script = script.replace("/dev/kmsg", "/dev/null")
    script = script.replace("/dev/virtio-ports/pageferry.state", "/dev/null")
    done = subprocess.run(["sh", "-c", script], capture_output=True, check=True)
    assert done.stdout.decode() == "".join(word + "\0" for word in command)


def test_the_script_sets_the_guest_up(tmp_path: Path) -> None:
    modules = tmp_path / "root/lib/modules/6.12.1"
    script = guest.run_script(
        ["true"],
        cwd=Path("/a b"),
        modules=modules,
        insert=[modules / "x.ko"],
        environment={"NAME": "a 'value'"},
    )
    lines = script.splitlines()
    assert f"export MODPROBE_OPTIONS='-d {tmp_path / 'root'}'" in lines
    assert "export NAME=" + shlex.quote("a 'value'") in lines
    assert f"insmod {modules / 'x.ko'} || exit 1" in lines
    assert lines[-5:] == [
        "cd '/a b' || exit 1",
        "echo '<0>pageferry: command starts' >/dev/kmsg",
        "read -r now _ </proc/uptime",
        'echo "started $now" >/dev/virtio-ports/pageferry.state',
        "exec true",
    ]


def test_modules_are_loaded_after_what_they_need(tmp_path: Path) -> None:
    (tmp_path / "modules.dep").write_text(
        "kernel/a-b.ko: kernel/c.ko kernel/d.ko\nkernel/c.ko: kernel/d.ko\n"
        "kernel/d.ko:\nkernel/e.ko:\n"
    )
    found = guest.module_files(tmp_path, ["a_b", "e", "c"])
    names = [path.name for path in found]
    assert names == ["d.ko", "c.ko", "a-b.ko", "e.ko"]
    with pytest.raises(PageferryError, match="this kernel has: a_b, c, d, e"):
        guest.module_files(tmp_path, ["mtcopy"])


def test_a_kernel_of_a_distribution_loads_its_drivers(tmp_path: Path) -> None:
    image = tmp_path / "boot/vmlinuz-6.1"
    with pytest.raises(PageferryError, match="modules of this kernel image"):
        installed.modules_of(image)
    modules = tmp_path / "lib/modules/6.1"
    modules.mkdir(parents=True)
    names = ["9p", "9pnet_virtio", "virtio_console", "overlay"]
    lines = [f"{name}.ko.xz: base.ko\n" for name in names]
    (modules / "modules.dep").write_text("".join(lines) + "base.ko:\n")
    (modules / "modules.builtin").write_text("kernel/drivers/virtio_pci.ko\n")
    for name in names:
        (modules / f"{name}.ko.xz").write_bytes(lzma.compress(name.encode()))
    (modules / "base.ko").write_bytes(b"base")
    assert installed.is_installed(image)
    archive = installed.initramfs(installed.modules_of(image), "cache=loose")
    script = archive[archive.index(b"#!/bin/busybox") :]
    assert b"mount -t 9p -o ro,cache=loose /dev/root /root" in script
    wanted = [("base", 0), ("9pnet_virtio", 1), ("9p", 2), ("overlay", 4)]
    at = [script.index(f"modules/{n:02}.ko\0".encode()) for _, n in wanted]
    assert at == sorted(at)
    for (name, _), start in zip(wanted, at, strict=True):
        assert script[start:].split(b"\0", 1)[1].lstrip(b"\0").startswith(name.encode())


def test_directories_that_the_guest_covers_are_known() -> None:
    assert guest.is_hidden(Path("/dev/shm/x"))
    assert guest.is_hidden(Path("/run"))
    assert not guest.is_hidden(Path("/runner"))
    assert not guest.is_hidden(Path("/tmp/x"))


@pytest.mark.parametrize("chosen", [accel.KVM, accel.TCG])
def test_the_machine_gets_one_accelerator(
    chosen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(accel, "find_qemu", lambda: "qemu")
    monkeypatch.setattr(paths, "venv_bin", lambda: tmp_path)
    (tmp_path / "virtme-run").touch()
    request = VmRequest(("true",), image=tmp_path / "bzImage", append=("extra=1",))
    machine = topology.load("two-node")
    argv = virtme.command_line(
        request,
        machine,
        chosen,
        icount=False,
        script=tmp_path / "run.sh",
        ports={"stderr": 9, "state": 10},
    )
    assert argv.count("-accel") == 1
    assert argv[argv.index("-accel") + 1].partition(",")[0] == chosen
    # Otherwise virtme-ng adds a second one, and QEMU refuses to start.
    assert "--disable-kvm" in argv
    assert "--kopt=extra=1" in argv
    assert f"--kopt=init={guest.INIT}\t--" in argv
    assert argv[argv.index("--qemu-bin") + 1].endswith("/qemu.sh")
    for name, number in (("stderr", 9), ("state", 10)):
        assert f"file,id=pf{name},path=/proc/self/fd/{number}" in argv
        assert f"virtserialport,name=pageferry.{name},chardev=pf{name}" in argv


STALE_CODE = b"""\
[    0.000000] Linux version 6.12.117-pageferry
[    1.422477] Oops: int3: 0000 [#1] SMP
[    1.422477] Kernel panic - not syncing: Fatal exception in interrupt
"""


def boots(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *boots: tuple[bytes, bytes]
) -> VmRequest:
    """Fake boots: each has a text on the console and on the port `state`."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    waiting = list(boots)

    def boot(self: vm_run._Run, scratch: Path) -> None:
        console, state = waiting.pop(0)
        self._serial(console)
        for byte in state:
            self._state(bytes([byte]))

    monkeypatch.setattr(vm_run._Run, "_boot", boot)
    image = tmp_path / "bzImage"
    image.touch()
    return VmRequest(("true",), image=image, accel=accel.TCG)


def test_the_guest_says_how_it_went_on_a_port(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = boots(monkeypatch, tmp_path, (b"", b"started 3.25\nended 137\n\n"))
    done = vm_run.run_vm(request)
    assert (done.exit_code, done.status, done.guest_boot_s) == (137, 137, 3.25)


def test_a_guest_that_qemu_broke_is_booted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (b"", b"started 3.25\nended 7\n\n")
    request = boots(monkeypatch, tmp_path, (STALE_CODE, b""), (STALE_CODE, b""), good)
    assert vm_run.run_vm(request).status == 7
    assert capsys.readouterr().err.count("booting again") == 2


def test_a_guest_that_qemu_breaks_each_time_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = boots(monkeypatch, tmp_path, *[(STALE_CODE, b"")] * vm_run._BOOTS)
    with pytest.raises(PageferryError, match="did not get as far") as caught:
        vm_run.run_vm(request)
    assert caught.value.code == ExitCode.NOT_STARTED
    # In other places this is a fault of the kernel.
    one_thread = dataclasses.replace(request, accel=accel.TCG_ONE_THREAD)
    boots(monkeypatch, tmp_path, (STALE_CODE, b""))
    with pytest.raises(PageferryError, match="did not get as far"):
        vm_run.run_vm(one_thread)


CRASH = b"[    0.000000] Linux version 6.12.117-pageferry\n"


def test_a_crash_of_qemu_is_no_end_of_the_guest(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    good = (b"", b"started 3.25\nended 7\n\n")
    request = boots(monkeypatch, tmp_path, (CRASH, b"killed 11\n"), good)
    assert vm_run.run_vm(request).status == 7
    said = capsys.readouterr().err
    assert "QEMU crashed (SIGSEGV): booting again" in said
    # A kill by the user is intended.
    boots(monkeypatch, tmp_path, (CRASH, b"killed 9\n"))
    with pytest.raises(PageferryError, match="did not get as far"):
        vm_run.run_vm(request)
    boots(monkeypatch, tmp_path, *[(CRASH, b"killed 6\n")] * vm_run._BOOTS)
    with pytest.raises(PageferryError, match="did not get as far") as caught:
        vm_run.run_vm(request)
    assert caught.value.reason == "QEMU crashed (SIGABRT)"


def test_a_crash_under_a_command_is_a_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = boots(monkeypatch, tmp_path, (CRASH, b"started 3.25\nkilled 11\n"))
    done = vm_run.run_vm(request)
    assert done.exit_code is None
    assert done.findings == ("QEMU crashed (SIGSEGV)",)
    assert done.broken_by_qemu
    assert dataclasses.replace(done, accel=accel.TCG_ONE_THREAD).broken_by_qemu
    assert done.status == ExitCode.FAILED
    # It does not matter after the command has ended.
    boots(monkeypatch, tmp_path, (CRASH, b"started 3.25\nended 7\nkilled 11\n"))
    done = vm_run.run_vm(request)
    assert (done.status, done.findings) == (7, ())


@pytest.mark.parametrize(
    ("does", "code", "said"),
    [("kill -SEGV $$", 139, "killed 11\n"), ("exit 3", 3, ""), ("exit 0", 0, "")],
)
def test_how_qemu_ended_is_said(
    tmp_path: Path, does: str, code: int, said: str
) -> None:
    fake = tmp_path / "qemu"
    fake.write_text(f'#!/bin/sh\n[ "$1,$2,$#" = "a b,c,2" ] && {does}\n')
    fake.chmod(0o755)
    state = tmp_path / "state"
    state.touch()
    env = {**os.environ, "PAGEFERRY_QEMU": str(fake), "PAGEFERRY_STATE": str(state)}
    argv = [str(Path(virtme.__file__).with_name("qemu.sh")), "a b", "c"]
    done = subprocess.run(argv, env=env, check=False, capture_output=True)
    assert done.returncode == code
    assert state.read_text() == said


def test_stale_code_under_a_command_is_a_complaint(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    request = boots(monkeypatch, tmp_path, (STALE_CODE, b"started 3.25\n"))
    done = vm_run.run_vm(request)
    assert done.exit_code is None
    assert "Oops: int3: 0000 [#1] SMP" in done.findings
    assert done.broken_by_qemu
    assert not dataclasses.replace(done, accel=accel.TCG_ONE_THREAD).broken_by_qemu
    assert not dataclasses.replace(done, accel=accel.KVM).broken_by_qemu
    assert not dataclasses.replace(done, findings=("BUG: x",)).broken_by_qemu


def outcome(**fields: object) -> VmOutcome:
    given: dict[str, object] = {
        "exit_code": 0,
        "timed_out": False,
        "stdout": "",
        "stderr": "",
        "serial_log": Path("x"),
        "findings": (),
        "accel": "tcg",
        "boot_s": 1.0,
        "guest_boot_s": 1.0,
        "run_s": 1.0,
        **fields,
    }
    return VmOutcome(**given)  # type: ignore[arg-type]


def test_the_exit_code_stands_for_all_of_it() -> None:
    assert outcome(exit_code=7).status == 7
    assert outcome(exit_code=0, findings=("WARNING: x",)).status == 1
    assert outcome(exit_code=None).status == 1
    assert outcome(exit_code=None, timed_out=True).status == 124
