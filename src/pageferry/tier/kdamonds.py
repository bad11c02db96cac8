# SPDX-License-Identifier: GPL-2.0-only
"""The kdamonds of the tiers, and the file that names them for the next command."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import replace

import msgspec

from pageferry import proc
from pageferry.balance.metrics import write as write_atomically
from pageferry.damon.admin import Admin
from pageferry.damon.scheme import Write
from pageferry.errors import ExitCode, PageferryError, from_os_error, unsupported
from pageferry.interleave import lock
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.tier import writes
from pageferry.tier.control import Done, Setting
from pageferry.tier.plan import Watch
from pageferry.tier.writes import Features

STATE = "/run/pageferry/tier.json"


class State(msgspec.Struct, kw_only=True):
    """The running service, for `--status`, `--stop` and the next start."""

    pid: int = 0
    # The kernel may reuse its PID.
    start_time: int = 0
    # The threads of our kdamonds by slot; None if the service was killed at a start.
    threads: dict[int, int | None] = {}
    promoted_bytes: int = 0
    demoted_bytes: int = 0
    # The part of the highest rate that is in force for promotion.
    rate_part: float = 1.0
    sampled_pages: int = 0
    sampled_promotions: int = 0
    sampled_ping_pong: int = 0


def read_state(files: Files) -> State | None:
    """Read the state of the last service; None if it has stopped."""
    try:
        return msgspec.json.decode(files.path(STATE).read_bytes(), type=State)
    except (OSError, msgspec.MsgspecError):
        return None


class Kdamonds:
    """Starts, changes and stops the kdamonds of some watches."""

    def __init__(self, files: Files) -> None:
        self.files = files
        # A service that was killed has left kdamonds: they are ours, too.
        self.state = read_state(files) or State()
        self.pid = os.getpid()
        us = processes.find(files, self.pid)
        self._us = (0, 0) if us is None else (us.pid, us.start_time)
        self.admin = Admin(files, self.state.threads)
        self._watches: dict[int, Watch] = {}
        self._settings: dict[int, Setting] = {}
        # The work of each scheme until the last count.
        self._counted: dict[tuple[int, int], Done] = {}
        # The abilities of the running kernel; None as long as others hide them.
        self.features: Features | None = None

    @property
    def watches(self) -> list[Watch]:
        """List what the kdamonds do."""
        return list(self._watches.values())

    def find_features(self) -> Features | None:
        """Find the abilities of the kernel, which shows them only below a scheme."""
        if not self.admin.is_present():
            raise unsupported(
                "this kernel cannot move memory between tiers",
                reason="it lacks CONFIG_DAMON_PADDR, CONFIG_DAMON_VADDR or "
                "CONFIG_DAMON_SYSFS",
                hint="pageferry doctor",
            )
        found = self.admin.probe(Features.FILES)
        if found is None:
            self.features = Features(target_nid=True) if self.files.dry_run else None
        else:
            self.features = Features(*(name in found for name in Features.FILES))
        return self.features

    def start(
        self,
        watches: Sequence[Watch],
        settings: Sequence[Setting],
        require: Callable[[Features | None], None],
    ) -> None:
        """Replace all kdamonds. After an error, none is left.

        settings: one for each watch.
        require: raises an error if the kernel lacks something.
        """
        with lock.hold_damon(self.files):
            self._stop()
            if not watches:
                return
            self.admin.require_alone("pageferry interleave status; damo stop")
            if not self.files.dry_run:
                self.admin.make_room(takeover=False)
            # The look at the start may have found a scheme of another program, which does
            # not show all of them.
            require(self.find_features())
            try:
                self.admin.make_slots()
                for number, (watch, setting) in enumerate(
                    zip(watches, settings, strict=True)
                ):
                    here = self.admin.kdamonds()
                    slot = self.admin.free_slot() if here else number
                    # If we are killed now, the next service knows whose kdamond it is.
                    self.state.threads[slot] = None
                    self.save()
                    self._begin(slot, watch, setting)
                    self.save()
            except BaseException:
                self._stop()
                raise

    def _begin(self, slot: int, watch: Watch, setting: Setting) -> None:
        def begin(pids: tuple[int, ...]) -> int:
            living = replace(watch, pids=pids)
            todo = writes.start_writes(living, setting, self.features)
            return self.admin.start(slot, todo)

        self.state.threads[slot], pids = self.admin.for_living(watch.pids, begin)
        self._watches[slot] = replace(watch, pids=pids)
        self._settings[slot] = setting

    def stop(self) -> None:
        """Stop all kdamonds; memory stays where it is."""
        with lock.hold_damon(self.files):
            self._stop()

    def close(self) -> None:
        """Stop all kdamonds, and remove the file of the service."""
        self.stop()
        if not self.files.dry_run:
            self.files.path(STATE).unlink(missing_ok=True)

    def _stop(self) -> None:
        """Stop each kdamond, even if an error or a signal comes meanwhile."""
        if self.files.dry_run:
            # Another service may own them.
            return
        with proc.signals_held():
            self._stop_each()

    def _stop_each(self) -> None:
        failed: PageferryError | None = None
        try:
            self.count()
        except PageferryError as error:
            failed = error
        for slot in list(self.state.threads):
            try:
                self.admin.stop(slot)
            except PageferryError as error:
                failed = error
                continue
            del self.state.threads[slot]
            self._watches.pop(slot, None)
            self._settings.pop(slot, None)
        self._counted = {}
        self.save()
        if self.state.threads and failed is not None:
            raise failed
        self.admin.clear_up()

    def is_running(self) -> bool:
        """Say whether all kdamonds run, or there are none."""
        running = {k.slot for k in self.admin.kdamonds() if self.admin.is_ours(k)}
        return self.files.dry_run or set(self._watches) <= running

    def retarget(self, watch: Watch) -> None:
        """Let the only kdamond watch other processes, or keep other addresses."""
        (slot,) = self._watches

        def commit(pids: tuple[int, ...]) -> None:
            self._commit(slot, writes.keep_writes(replace(watch, pids=pids)))

        _, pids = self.admin.for_living(watch.pids, commit)
        self._watches[slot] = replace(watch, pids=pids)

    def set(self, settings: Sequence[Setting]) -> None:
        """Change rates and ages, if that is worth a commit."""
        pairs = zip(list(self._watches.items()), settings, strict=True)
        for (slot, watch), setting in pairs:
            if setting.differs(self._settings[slot]):
                self._commit(slot, writes.setting_writes(watch, setting))
                self._settings[slot] = setting

    def count(self) -> dict[tuple[int, int], Done]:
        """Add what DAMON has moved since the last count to the totals, and return it.

        The keys are the numbers of the watch and of its scheme.
        """
        found = {}
        fresh = True
        for number, (slot, watch) in enumerate(self._watches.items()):
            # A busy kdamond costs a minute. A stop has five, and needs no figures.
            fresh = fresh and self.admin.update_stats(slot)
            for at in range(2 * len(watch.moves)):
                stats = self.admin.stats(slot, at, fresh=False)
                now = Done(stats["sz_tried"], stats["sz_applied"])
                before = self._counted.get((slot, at), Done())
                self._counted[slot, at] = now
                more = Done(
                    max(now.tried - before.tried, 0), max(now.moved - before.moved, 0)
                )
                found[number, at] = more
                if at >= len(watch.moves):
                    # It moves nothing.
                    continue
                if watch.moves[at].hot:
                    self.state.promoted_bytes += more.moved
                else:
                    self.state.demoted_bytes += more.moved
        return found

    def save(self) -> None:
        """Store the state: the kdamonds are this process's now."""
        if self.files.dry_run:
            return
        self.state.pid, self.state.start_time = self._us
        text = msgspec.json.encode(self.state).decode() + "\n"
        try:
            write_atomically(self.files.path(STATE), text)
        except OSError as error:
            raise from_os_error(
                error, "cannot store the state", ExitCode.FAILED
            ) from error

    def _commit(self, slot: int, todo: list[Write], command: str = "commit") -> None:
        with lock.hold_damon(self.files):
            self.admin.commit(slot, todo, command)


def stop_all(files: Files) -> int:
    """Stop the kdamonds of a service that was killed. Returns their number."""
    known = Kdamonds(files)
    count = len(known.state.threads)
    if not count:
        raise PageferryError(
            "pageferry tier has left nothing to stop", hint="pageferry tier --status"
        )
    known.close()
    return count
