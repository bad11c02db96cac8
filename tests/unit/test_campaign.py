# SPDX-License-Identifier: GPL-2.0-only
"""The settings of the fault campaign, and the judgement of its report."""

from __future__ import annotations

from pathlib import Path

import pytest

from helpers import selftests
from pageferry import output
from pageferry.bench import campaign, run_campaign
from pageferry.cli import main
from pageferry.errors import PageferryError
from pageferry.kernel.build import BuildRequest, BuiltKernel
from pageferry.vm import accel
from pageferry.vm.run import VmOutcome, VmRequest

KERNEL = BuiltKernel(
    image=Path("bzImage"),
    build_dir=Path("build"),
    modules=Path("modules"),
    release="6.12.117",
    base="6.12",
    vanilla=False,
    configs=(),
    cached=True,
)


def test_the_program_knows_the_same_faults() -> None:
    assert selftests.cases("campaign") == [*campaign.FAULTS, *campaign.DAMAGING]


def test_faults_come_in_the_order_of_the_program() -> None:
    assert campaign.parse_faults("mixed,fail") == ("fail", "mixed")
    assert "trusted-lie" not in campaign.parse_faults("all")
    with pytest.raises(PageferryError, match="unknown fault: moon"):
        campaign.parse_faults("fail,moon")


def test_engines_are_switched_with_one_thread_under_emulation() -> None:
    assert run_campaign.boots(("fail", "mixed"), accel.KVM) == [
        (accel.KVM, ("fail", "mixed"))
    ]
    assert run_campaign.boots(("fail", "mixed", "lie"), accel.TCG) == [
        (accel.TCG, ("fail", "lie")),
        (accel.TCG_ONE_THREAD, ("mixed",)),
    ]


def test_only_what_is_announced_may_be_said() -> None:
    lines = [
        "[    1.0] DMA-API: preallocated 65536 debug entries",
        "[    2.0] dcbm: dma0chan1 is taken out of use: too many errors in a row",
        "[    2.1] dcbm: dma0chan1 called back twice",
        "[    2.2] DMA-API: dmasim dmasim.0: device driver frees DMA memory",
        "[    2.3] systemd: not ours",
    ]
    assert campaign.unannounced(lines) == [
        "dcbm: dma0chan1 called back twice",
        "DMA-API: dmasim dmasim.0: device driver frees DMA memory",
    ]


def test_problems_are_listed() -> None:
    report = campaign.Report()
    for line in (
        '{"type": "phase", "fault": "late", "folios": 3, "problems": "damaged memory"}',
        '{"type": "leaks", "kib": 9, "ok": false}',
        "# not for us",
        '{"type": "end", "folios": 3}',
    ):
        campaign.read_line(report, line)
    assert report.folios == 3
    assert report.ended == 1
    assert len(report.problems()) == 2
    assert report.problems()[0] == "late: damaged memory"


def test_dry_run_does_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fault-campaign", "--dry-run", "--folios", "500"]) == 0
    assert "--folios 500" in capsys.readouterr().out


@pytest.mark.parametrize("bad", [["--folios", "0"], ["--faults", "x"], ["--seed", "a"]])
def test_bad_usage(bad: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fault-campaign", *bad]) == 2
    assert capsys.readouterr().out == ""


def test_complaints_of_linux_itself_are_known_one_by_one() -> None:
    stock = "page dumped because: VM_WARN_ON_FOLIO(folio_test_partially_mapped(folio))"
    other = "page dumped because: VM_BUG_ON_FOLIO(!folio_test_locked(src))"
    assert campaign.unexplained([stock, other]) == [other]


def test_a_guest_that_qemu_broke_is_booted_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Output from before the failure does not count."""
    log = tmp_path / "log"
    log.write_text("")
    phase = b'{"type": "phase", "fault": "fail", "folios": 4, "problems": "broken"}\n'
    good = b'{"type": "phase", "fault": "fail", "folios": 5, "problems": ""}\n'
    boots = [
        (phase, None, ("Oops: int3: 0000 [#1]",)),
        (phase, None, ("QEMU crashed (SIGSEGV)",)),
        (good + b'{"type": "end"}\n', 0, ()),
    ]

    def boot(request: VmRequest) -> VmOutcome:
        said, code, findings = boots.pop(0)
        assert request.on_stdout is not None
        request.on_stdout(said)
        return VmOutcome(code, False, "", "", log, findings, accel.TCG, 0, 0, 0)

    monkeypatch.setattr(run_campaign, "build_kernel", lambda _: KERNEL)
    monkeypatch.setattr(run_campaign, "build_program", lambda _: Path("campaign"))
    monkeypatch.setattr(run_campaign, "run_vm", boot)
    progress = output.Progress("campaign", 5)
    monkeypatch.setattr(output, "Progress", lambda *_: progress)
    monkeypatch.setattr(accel, "choose", lambda _: accel.TCG)
    job = run_campaign.Job(5, ("fail",), 1, 200, BuildRequest())
    report = run_campaign.run(job)
    assert not report.problems()
    assert report.folios == progress.done == 5
    assert capsys.readouterr().err.count("once more") == 2
