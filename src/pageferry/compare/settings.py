# SPDX-License-Identifier: GPL-2.0-only
"""Settings of the kernel while programs run, and their way back.

They concern the whole machine. A lock keeps a second command away, which would take the
settings of the first one for those of the operator.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from pageferry.interleave import lock
from pageferry.sysfs.files import Files
from pageferry.sysfs.offload import DEFAULT, DIRECTORY, Offload
from pageferry.sysfs.undo import Undo, guarded


@contextlib.contextmanager
def kept(
    files: Files, wanted: Mapping[str, str], group: str | None, *, engines: bool
) -> Iterator[None]:
    """Make settings, and take them back at the end, also after SIGKILL.

    engines: the block may change the active engine. Reasons have no engine of their own
    meanwhile: the runs would all use that one.
    """
    with contextlib.ExitStack() as stack:
        handle = stack.enter_context(lock.hold_settings(files))
        # Under lockdown the files of debugfs exist, but do not open.
        changes = {n: value for n, value in wanted.items() if files.read_or(n, "")}
        before = [(name, files.read(name).strip()) for name in changes]
        if engines:
            state = Offload(files).read()
            before.append((f"{DIRECTORY}/engine", state.engine))
            for reason, engine in sorted(state.exceptions().items()):
                name = f"{DIRECTORY}/engine_of/{reason}"
                changes[name] = DEFAULT
                before.append((name, engine))
        stack.enter_context(guarded(files, before, handle, group))
        undo = stack.enter_context(Undo(files))
        # The kernel forgets the engines of reasons when it gets "none" as the engine, so
        # these come back last. Undo begins with the last one.
        for name, _ in reversed(before):
            undo.remember(name)
        for name, value in changes.items():
            if files.read(name).strip() != value:
                files.write(name, value)
        yield
