# SPDX-License-Identifier: GPL-2.0-only
"""Install both packages on Debian 13, use them, and purge them.

    python3 -m helpers.proof image                  make the disk with Debian 13
    python3 -m helpers.proof packages CONFIG        make both packages
    python3 -m helpers.proof STAGE CONFIG           boot once: install, use or after

CONFIG is `small` or `debian`. tests/packages/test_install.py does all of this. All files
lie in packages-proof/, in the cache directory.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from helpers import proof_image, proof_machine
from helpers.proof_files import Entry, Stage
from pageferry import output, paths
from pageferry.bench import build
from pageferry.errors import ExitCode, PageferryError
from pageferry.kernel import config

ROOT = Path(__file__).resolve().parents[2]
SMALL = "small"
DEBIAN = "debian"
CONFIGS = (SMALL, DEBIAN)
STAGES = ("install", "use", "after")
FRAGMENTS = (
    ROOT / "linux/configs/vm.config",
    ROOT / "tests/fixtures/debian13.config",
)


@dataclass(frozen=True)
class Packages:
    """Both packages, and what `uname -r` says on this kernel."""

    tool: Path
    kernel: Path
    release: str


def folder_of(name: str) -> Path:
    """Return the directory of a configuration."""
    return paths.make_cache_dir("packages-proof", name)


# --- packages -------------------------------------------------------------------


def small_config() -> str:
    """Return a configuration as a distribution would have it, but small."""
    values: dict[str, str] = {}
    for path in FRAGMENTS:
        values |= config.parse(path.read_text(), str(path))
    return config.render(values)


def kernel_words(name: str, folder: Path) -> list[str]:
    """Return the words of `pageferry kernel package` for a configuration."""
    words = ["kernel", "package", "--output", str(folder), "--json"]
    if name == DEBIAN:
        return [*words, "--config-from", "debian"]
    path = folder / "config"
    path.write_text(small_config())
    return [*words, "--config-from", str(path)]


def call(argv: Sequence[str | Path]) -> subprocess.CompletedProcess[str]:
    """Run a program of the checkout; its messages go to the terminal."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    words = [str(word) for word in argv]
    return subprocess.run(
        words, env=environment, stdout=subprocess.PIPE, text=True, check=False
    )


def tool(*words: str) -> subprocess.CompletedProcess[str]:
    """Run the tool of the checkout."""
    return call([sys.executable, "-m", "pageferry", *words])


def obstacle(name: str) -> str | None:
    """Return why this host cannot make the packages or the machine, or None."""
    missing = proof_image.missing_tools()
    if missing:
        return f"missing: {' '.join(missing)}"
    done = tool(*kernel_words(name, folder_of(name)), "--dry-run")
    if done.returncode == ExitCode.UNSUPPORTED:
        return f"kernel packages cannot be built here: {done.stdout}"
    return None


def make_packages(name: str) -> Packages:
    """Build both packages."""
    folder = folder_of(name)
    for old in folder.glob("*.deb"):
        old.unlink()
    made = call([sys.executable, ROOT / "scripts/make_deb.py", folder])
    if made.returncode != 0:
        raise _failure("make_deb.py failed", f"exit status {made.returncode}")
    done = tool(*kernel_words(name, folder))
    if done.returncode != 0:
        raise _failure("kernel package failed", done.stdout)
    packages = find_packages(name)
    if name == SMALL:
        wanted = FRAGMENTS[-1]
        text = config_of(packages)
        config.check(config.parse(wanted.read_text(), str(wanted)), text)
    return packages


def find_packages(name: str) -> Packages:
    """Return the packages that make_packages() has built."""
    folder = folder_of(name)
    # On Debian 12, another package is beside the tool's: Debian 13 has its own.
    (of_tool,) = folder.glob("pageferry_*.deb")
    (of_kernel,) = folder.glob("linux-image-*+pageferry_*.deb")
    release = of_kernel.name.partition("_")[0].removeprefix("linux-image-")
    return Packages(of_tool, of_kernel, release)


def config_of(packages: Packages) -> str:
    """Read the configuration in the package of a kernel."""
    argv = ["dpkg-deb", "--fsys-tarfile", str(packages.kernel)]
    with subprocess.Popen(argv, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        with tarfile.open(fileobj=process.stdout, mode="r|") as archive:
            for member in archive:
                if Path(member.name).name == f"config-{packages.release}":
                    stream = archive.extractfile(member)
                    assert stream is not None
                    text = stream.read().decode()
                    process.kill()
                    return text
    raise _failure("the package has no configuration", str(packages.kernel))


def programs() -> list[Entry]:
    """Return the programs of `bench`, where the tool in the guest looks for them.

    The tool builds them with a compiler, which the guest lacks. They are static, so
    those of the host run there.
    """
    built = build.build()
    key = build.content_key(ROOT / "bench")
    place = f"cache/pageferry/bench/{key}"
    return [
        Entry(f"{place}/{path.name}", source=path, mode=0o755)
        for path in sorted(built.iterdir())
    ]


def _failure(what: str, reason: str) -> PageferryError:
    return PageferryError(what, reason=reason, code=ExitCode.NOT_STARTED)


# --- stages -----------------------------------------------------------------------


def entries_of(stage: str, packages: Packages) -> list[Entry]:
    """Return the files that a stage needs."""
    if stage == "install":
        files = (packages.tool, packages.kernel)
        return [Entry(f"packages/{path.name}", source=path) for path in files]
    return programs() if stage == "use" else []


def run_stage(name: str, stage: str) -> Stage:
    """Boot the machine once. The first stage copies the disk."""
    folder = folder_of(name)
    image = proof_image.root_image()
    disk = folder / "root.img"
    if stage == STAGES[0]:
        copy = ["cp", "--sparse=always", "--reflink=auto"]
        subprocess.run([*copy, str(image.disk), str(disk)], check=True)
    entries = entries_of(stage, find_packages(name))
    return proof_machine.boot(disk, stage, folder, image.kernel, entries)


def run_all(name: str) -> dict[str, Stage]:
    """Run all stages; the disk stays only after a failure."""
    found = {stage: run_stage(name, stage) for stage in STAGES}
    (folder_of(name) / "root.img").unlink()
    return found


def main(words: list[str]) -> int:
    """Run one part, and print the results of its steps."""
    if words == ["image"]:
        output.answer(str(proof_image.root_image().disk))
        return 0
    verb, name = words if len(words) == 2 else ("", "")
    if verb not in ("packages", *STAGES) or name not in CONFIGS:
        output.talk(__doc__ or "")
        return int(ExitCode.USAGE)
    if verb == "packages":
        packages = make_packages(name)
        output.answer(f"{packages.tool}\n{packages.kernel}")
        return 0
    stage = run_stage(name, verb)
    status = {step: result.status for step, result in stage.steps.items()}
    output.answer(json.dumps(status, indent=2))
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except PageferryError as error:
        output.report_error(error, as_json=False)
        sys.exit(int(error.code))
