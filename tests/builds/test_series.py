# SPDX-License-Identifier: GPL-2.0-only
"""Every series builds after each patch, and pleases its base's checkpatch.

`kernel series` itself compares the result of `git am` with the files of the series, and
those of the series with everything with the tree of a build.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from pageferry import paths
from pageferry.kernel import bases
from pageferry.kernel.series import spec
from pageferry.kernel.series.make import SeriesRequest, write_series

LINUX = paths.repo_root() / "linux"
SERIES = [
    (name, base)
    for name in spec.names(LINUX)
    for base in spec.read(LINUX, name).bases
    if base in bases.names(LINUX)
]


@pytest.mark.builds
@pytest.mark.parametrize(("name", "base"), SERIES)
def test_each_patch_builds(
    name: str, base: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GIT_AUTHOR_NAME", "Test")
    monkeypatch.setenv("GIT_AUTHOR_EMAIL", "test@example.org")
    written = write_series(SeriesRequest(name, base, tmp_path / "mails"))
    patches = spec.read(LINUX, name).patches(base)
    assert len(written.mails) == 1 + len(patches)
