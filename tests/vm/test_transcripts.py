# SPDX-License-Identifier: GPL-2.0-only
"""Transcripts of the pages, in the machines that they name."""

from __future__ import annotations

import functools
import subprocess
from pathlib import Path

import pytest

from helpers import guests, transcripts
from helpers.transcripts import ROOT, Transcript
from pageferry.kernel.build import BuiltKernel
from pageferry.vm.run import VmRequest

pytestmark = pytest.mark.vm
ALL = transcripts.of_layer("vm")
_NEXT = "=== transcript"


@functools.cache
def boot(machine: tuple[str, ...], image: Path, modules: Path) -> list[str]:
    """Run all transcripts of a machine in one boot."""
    scripts = [t.script() for t in ALL if t.machine == machine]
    text = f"\necho '{_NEXT}'\n".join([transcripts.SETUP, *scripts])
    done = guests.run(
        VmRequest(
            command=("bash", "-c", text),
            image=image,
            modules=modules,
            topology=machine[0],
            append=("secretmem.enable=1",),
            timeout_s=900.0,
            cwd=ROOT,
        )
    )
    assert done.exit_code is not None and not done.findings, done.serial_tail()
    return done.stdout.split(f"{_NEXT}\n")[1:]


@pytest.mark.parametrize(
    "transcript", [t for t in ALL if t.machine[0] != "host"], ids=lambda t: t.name
)
def test_a_page_shows_what_a_machine_prints(
    transcript: Transcript, request: pytest.FixtureRequest
) -> None:
    stock = "stock" in transcript.machine
    kernel: BuiltKernel = request.getfixturevalue(
        "kernel_vanilla" if stock else "kernel_vm"
    )
    printed = boot(transcript.machine, kernel.image, kernel.modules)
    same = [t for t in ALL if t.machine == transcript.machine]
    wrong = transcript.differences(printed[same.index(transcript)])
    assert not wrong, wrong


@pytest.mark.parametrize(
    "transcript", [t for t in ALL if t.machine[0] == "host"], ids=lambda t: t.name
)
@pytest.mark.usefixtures("kernel_vm")
def test_a_page_shows_what_the_host_prints(transcript: Transcript) -> None:
    """These commands boot a machine themselves."""
    script = transcripts.SETUP + transcript.script()
    done = subprocess.run(
        ["bash", "-c", script],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    wrong = transcript.differences(done.stdout)
    assert not wrong, wrong
