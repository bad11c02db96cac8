# SPDX-License-Identifier: GPL-2.0-only
"""Both packages work on Debian 13, and a purge leaves nothing.

The machine is a virtual one with two nodes. It has a disk with Debian's boot loader,
initramfs, systemd and apt. docs/how-to/packages.md lists the steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from helpers import proof
from helpers.proof_files import Stage, copied, differences, is_newer
from helpers.proof_guest import MOVED_BYTES
from pageferry.errors import PageferryError
from pageferry.vm import klog

pytestmark = pytest.mark.packages

PAGES = MOVED_BYTES // 4096
# Linux says so of some processors.
MITIGATIONS = ("^(RETBleed|Spectre V2) ?: WARNING:",)


@dataclass(frozen=True)
class Proof:
    """The packages, the results of each boot, and the console of our kernel."""

    packages: proof.Packages
    stages: Mapping[str, Stage]
    console: str


@pytest.fixture(
    scope="module",
    params=[
        proof.SMALL,
        pytest.param(proof.DEBIAN, marks=pytest.mark.debian_config),
    ],
)
def done(request: pytest.FixtureRequest) -> Proof:
    """Make the packages, and run all stages."""
    name = str(request.param)
    why = proof.obstacle(name)
    if why is not None:
        pytest.skip(why)
    try:
        packages = proof.make_packages(name)
        stages = proof.run_all(name)
    except PageferryError as error:
        pytest.fail(f"{error}\n{error.detail or ''}", pytrace=False)
    console = proof.folder_of(name) / "use.log"
    return Proof(packages, stages, console.read_text(errors="replace"))


def test_debians_kernel_boots_from_the_disk(done: Proof) -> None:
    for stage in ("install", "after"):
        assert done.stages[stage].steps["kernel"].out.strip().endswith("+deb13-amd64")


def test_apt_installs_both_packages(done: Proof) -> None:
    install = done.stages["install"]
    assert install.trouble("install", "installed") == []
    names = [line.split()[0] for line in install.steps["installed"].out.splitlines()]
    assert names == [f"linux-image-{done.packages.release}", "pageferry"]


def test_grub_boots_our_kernel_first(done: Proof) -> None:
    debians = done.stages["install"].steps["kernel"].out.strip()
    ours = done.packages.release
    assert not is_newer(debians, ours), "upgrade linux-source-6.12 on this host"
    assert done.stages["install"].files["first.txt"] == ours
    assert done.stages["use"].steps["kernel"].out.strip() == ours


def test_doctor_knows_the_machine(done: Proof) -> None:
    # This machine has no compiler, so doctor says that it cannot build kernels.
    doctor = done.stages["use"].steps["doctor"]
    assert doctor.status == 3, doctor.err
    checks = {check["name"]: check for check in doctor.json()["checks"]}
    assert checks["kernel"]["detail"] == done.packages.release
    assert checks["batch copy"]["ok"], checks["batch copy"]
    assert checks["nodes"]["ok"], checks["nodes"]


def test_no_engine_is_active_after_boot(done: Proof) -> None:
    use = done.stages["use"]
    assert use.trouble("version", "status-boot") == []
    status = use.steps["status-boot"].json()
    assert status["engine"] == "none"
    assert copied(status, "mtcopy") == 0


def test_mtcopy_moves_memory(done: Proof) -> None:
    use = done.stages["use"]
    steps = ("modprobe", "engine", "always", "move", "status-moved")
    assert use.trouble(*steps) == []
    moved = use.steps["move"].json()
    assert moved["pages"] == PAGES
    for round_ in moved["rounds"]:
        assert (round_["there"], round_["intact"]) == (PAGES, True), round_
    status = use.steps["status-moved"].json()
    assert status["engine"] == "mtcopy"
    assert copied(status, "mtcopy") > 0


def test_the_benchmark_verifies_its_moves(done: Proof) -> None:
    use = done.stages["use"]
    assert use.trouble("bench", "status-bench") == []
    rows = use.steps["bench"].json()["rows"]
    assert [row for row in rows if not row["verified"]] == []
    assert sum(row.get("engine_bytes") or 0 for row in rows) > 0
    before, after = (
        copied(use.steps[step].json(), "mtcopy")
        for step in ("status-moved", "status-bench")
    )
    assert after > before


def test_off_deactivates_the_engine(done: Proof) -> None:
    use = done.stages["use"]
    assert use.trouble("off", "unload") == []
    assert use.steps["off"].json()["engine"] == "none"


def test_the_unit_of_the_balancer_runs(done: Proof) -> None:
    """This machine has neither a checkout nor a compiler, and homes are hidden."""
    use = done.stages["use"]
    assert use.trouble("serve", "serve-log", "serve-active", "serve-stop") == []
    assert "takes care of name systemd" in use.steps["serve-log"].out
    assert "below 90%: stays on node 0" in use.steps["serve-log"].out
    assert use.steps["serve-result"].out.strip() == "Result=success"


def test_the_unit_of_the_tiers_stops_damon_after_a_kill(done: Proof) -> None:
    use = done.stages["use"]
    assert use.trouble("tier", "tier-log", "tier-kill", "tier-stop") == []
    log = use.steps["tier-log"].out
    assert "takes care of name systemd" in log and "tiers 0 > 1" in log
    assert "stopped 1 kdamonds" in log
    assert use.steps["tier-left"].out.strip() == "0"


def test_our_kernel_reports_no_error(done: Proof) -> None:
    # The console also shows systemd's messages, and the output of commands.
    lines = [
        line for line in done.console.splitlines() if klog.stamp_s(line) is not None
    ]
    assert "Linux version" in "".join(lines)
    assert klog.findings(lines, MITIGATIONS) == []


def test_a_purge_leaves_nothing(done: Proof) -> None:
    before, after = done.stages["install"], done.stages["after"]
    assert done.stages["use"].trouble("purge") == []
    assert before.trouble("packages") == after.trouble("packages") == []
    assert after.steps["packages"].out == before.steps["packages"].out
    assert differences(before.inventory(), after.inventory()) == []
