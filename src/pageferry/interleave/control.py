# SPDX-License-Identifier: GPL-2.0-only
"""Start, change, show and stop sessions, by DAMON or from user space."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Literal

from pageferry.damon.admin import Admin
from pageferry.damon.scheme import (
    Scheme,
    Write,
    dest_writes,
    quota_writes,
    start_writes,
    target_writes,
)
from pageferry.errors import ExitCode, PageferryError, unsupported, usage_error
from pageferry.interleave import lock, placement
from pageferry.interleave.gaps import Gap, before_heap
from pageferry.interleave.memory import Memory
from pageferry.interleave.moving import PageMover
from pageferry.interleave.sessions import Session, Store
from pageferry.interleave.user_space import Pass, Quota, Report
from pageferry.interleave.weights import Weights, check_nodes
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.nodes import read_nodes
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import format_nodes

By = Literal["kernel", "user"]
KERNEL: By = "kernel"
USER: By = "user"
# A worker looks for new weights or a stop this often.
_LISTEN_S = 0.2
# A worker finishes its current step before it ends.
_WORKER_ENDS_S = 10.0
# The status measures the CPU time of watchers for at least this long.
_SAMPLE_S = 1.0


@dataclass(frozen=True)
class Request:
    """The arguments of a start."""

    pid: int
    weights: Weights
    hot: bool = False
    quota: Quota | None = None
    include_children: bool = False
    # More processes of the same session.
    members: tuple[int, ...] = ()
    # None: DAMON if the kernel can, otherwise this tool.
    by: str | None = None
    takeover: bool = False
    # The service that takes care of the session.
    owner: str = ""


@dataclass
class Outcome:
    """The result of a start or a change."""

    session: Session
    pids: list[int]
    # The pass from user space; None for DAMON, which has only begun.
    report: Report | None = None
    # The reason why the tool moves the pages, unless the caller chose that.
    why_user: str | None = None


@dataclass
class Status:
    """A session, and the places of its memory."""

    session: Session
    alive: bool
    running: bool
    report: Report = field(default_factory=Report)
    kernel_stats: dict[str, int] = field(default_factory=dict)
    # Part of a CPU that each watcher uses now: kdamond, worker, service.
    costs: dict[str, float] = field(default_factory=dict)

    @property
    def moved_pages(self) -> int:
        """Count the pages that have moved since the start."""
        now = self.kernel_stats.get("sz_applied", 0) // PAGE
        return self.session.moved_pages + now

    @property
    def unmovable(self) -> dict[str, int]:
        """Count the pages that cannot move, by reason."""
        if self.session.by == KERNEL:
            return dict(self.report.unmovable)
        return {**self.report.unmovable, **self.session.unmovable}


class Control:
    """All sessions of one machine."""

    def __init__(self, files: Files, mover: PageMover) -> None:
        self.files = files
        self.mover = mover
        self.store = Store(files)

    @property
    def admin(self) -> Admin:
        """Return DAMON's files, with the current list of our kdamonds."""
        return Admin(self.files, self.store.slots())

    def start(self, request: Request, *, keep_on: bool = False) -> Outcome:
        """Start a session; an error leaves everything unchanged."""
        with lock.hold_damon(self.files):
            self.sweep()
            session, pids, why = self._begin(request)
        if session.by == KERNEL:
            return Outcome(session, pids)
        report = self._user_pass(session, pids, keep_on=keep_on)
        return Outcome(session, pids, report, why)

    def _begin(self, request: Request) -> tuple[Session, list[int], str | None]:
        """Check a request, and store its session. DAMON has then begun."""
        process = processes.require(self.files, request.pid)
        check_nodes(request.weights, read_nodes(self.files))
        known = self.store.find(request.pid)
        if known is not None and (known.resting or self.is_running(known)):
            raise PageferryError(
                "already started for this process",
                value=f"{request.pid}, weights {known.wanted}",
                hint=f"pageferry interleave set --pid {request.pid} --weights ...",
                code=ExitCode.USAGE,
            )
        pids = self.pids((request.pid, *request.members), request.include_children)
        if request.pid not in pids:
            raise processes.ended(request.pid, "before anything was started")
        self._require_memory(pids)
        self._require_allowed(pids, request.weights)
        by, why = self._choose(request, pids)
        quota = request.quota
        session = Session(
            pid=request.pid,
            start_time=process.start_time,
            name=process.name,
            by=by,
            weights=list(request.weights.pairs),
            hot=request.hot,
            include_children=request.include_children,
            members=list(request.members),
            member_starts=self._starts(request.members),
            owner=request.owner,
            owner_pid=os.getpid() if request.owner else None,
            quota_bytes=None if quota is None else quota.size_bytes,
            quota_ms=None if quota is None else max(round(quota.interval_s * 1000), 1),
        )
        if by == KERNEL:
            try:
                self._start_kernel(session, pids)
            except BaseException:
                # A signal may come after the kdamond has begun, so stop it first.
                self._drop(session)
                raise
        elif not self.files.dry_run:
            self.store.save(session)
        return session, pids, why

    def set(
        self,
        pid: int,
        weights: Weights,
        quota: Quota | None = None,
        members: tuple[int, ...] | None = None,
    ) -> Outcome:
        """Change the weights of a session; `members` replaces its other processes."""
        with lock.hold_damon(self.files):
            session, pids = self._change(pid, weights, quota, members)
        if session.by == KERNEL or self.has_worker(session):
            return Outcome(session, pids)
        return Outcome(session, pids, self._user_pass(session, pids))

    def _change(
        self,
        pid: int,
        weights: Weights,
        quota: Quota | None,
        members: tuple[int, ...] | None,
    ) -> tuple[Session, list[int]]:
        """Store new weights, and tell DAMON. The caller holds the lock."""
        session = self.store.require(pid)
        check_nodes(weights, read_nodes(self.files))
        if members is not None:
            session.members = list(members)
            session.member_starts = self._starts(members)
        pids = self.pids_of(session)
        if pid not in pids:
            raise processes.ended(pid, "there is nothing left to move")
        if session.by == KERNEL and not (session.resting or self.is_running(session)):
            raise PageferryError(
                "its kdamond no longer runs",
                value=str(pid),
                reason="another program has stopped it",
                hint=f"pageferry interleave stop --pid {pid}, then start",
            )
        self._mind(session, pids, weights)
        session.weights = list(weights.pairs)
        session.rounds += 1
        if quota is not None:
            session.quota_bytes = quota.size_bytes
            session.quota_ms = max(round(quota.interval_s * 1000), 1)
        if session.resting:
            self._wake(session, pids)
        elif session.by == KERNEL:
            self.admin.for_living(pids, lambda pids: self._commit(session, pids))
        self.store.save(session)
        return session, pids

    def _commit(self, session: Session, pids: Sequence[int]) -> None:
        assert session.slot is not None
        writes: list[Write] = [*target_writes(pids), *dest_writes(session.wanted)]
        if session.quota is not None:
            gap = self._gap(pids)
            writes += quota_writes(session.quota, gap, hot=session.hot)
        self.admin.commit(session.slot, writes)

    def rest(self, pid: int) -> int:
        """Stop DAMON, because memory is in its place. Returns the moved bytes."""
        with lock.hold_damon(self.files):
            session = self.store.require(pid)
            if session.by != KERNEL or session.resting or not self.is_running(session):
                return 0
            return self._pause(session)

    def mind(self, pid: int) -> None:
        """Stop DAMON if it would move memory where its owner may not have it.

        A process may call mbind(2), and an administrator may change its cpuset, after
        DAMON has begun. The error has the reason.
        """
        with lock.hold_damon(self.files):
            session = self.store.require(pid)
            if session.by == KERNEL and not session.resting:
                self._mind(session, self.pids_of(session), session.wanted)

    def _mind(self, session: Session, pids: list[int], weights: Weights) -> None:
        try:
            self._require_allowed(pids, weights)
            self._require_unbound(pids, weights, session.by)
        except PageferryError:
            if session.slot is not None and not self.files.dry_run:
                self._pause(session)
            raise

    def _pause(self, session: Session) -> int:
        assert session.slot is not None
        moved = self.admin.stats(session.slot).get("sz_applied", 0)
        self.admin.stop(session.slot)
        session.slot, session.thread, session.resting = None, None, True
        session.moved_pages += moved // PAGE
        self.store.save(session)
        return moved

    def _wake(self, session: Session, pids: list[int]) -> None:
        """Start DAMON again for a session at rest."""
        self.admin.require_alone("wait until it ends; memory stays where it is")
        if not self.files.dry_run:
            self.admin.make_room(takeover=False)
        try:
            session.resting = False
            self._start_kernel(session, pids)
        except BaseException:
            if session.slot is not None:
                self.admin.stop(session.slot)
            session.slot, session.thread, session.resting = None, None, True
            self.store.save(session)
            raise

    def drop(self, pid: int) -> None:
        """End a session whose process may have ended; memory stays where it is."""
        with lock.hold_damon(self.files):
            session = self.store.read(pid)
            if session is not None:
                self._drop(session)

    def _drop(self, session: Session) -> None:
        if session.by == KERNEL and session.slot is not None:
            self.admin.stop(session.slot)
        self.store.forget(session.pid)

    def sweep(self) -> None:
        """Forget sessions without a running process, and stop their kdamonds.

        A session without a thread belongs to a command that was killed at its start.
        """
        if self.files.dry_run:
            return
        for session in self.store.all():
            killed = session.slot is not None and session.thread is None
            if killed or not self.pids_of(session):
                self._drop(session)

    def placed(
        self, pids: Sequence[int], nodes: Iterable[int]
    ) -> dict[int, float] | None:
        """Return the share of each node of the memory that may move among some nodes.

        Empty if none may move; None if the kernel does not say.
        """
        found = placement.read(self.files, pids, nodes)
        if found.known:
            return found.shares
        # This kernel does not show numa_maps, so ask for each page.
        try:
            pages = Pass(self.files, self.mover, Weights(((0, 1),))).look(pids).pages
        except PageferryError:
            return None
        total = sum(pages.values())
        return {node: count / total for node, count in pages.items() if count}

    def status(self, pid: int) -> Status:
        """Look up the places of the memory, and move nothing."""
        session = self.store.require(pid)
        alive = self._is_alive(session)
        status = Status(session, alive, self.is_running(session))
        watchers = {"kdamond": session.thread if status.running else None}
        watchers["worker"] = session.worker if self.has_worker(session) else None
        watchers[session.owner] = session.owner_pid
        meter = processes.CpuMeter(self.files, watchers)
        if session.by == KERNEL and session.slot is not None and status.running:
            status.kernel_stats = self.admin.stats(session.slot)
        if alive:
            work = Pass(self.files, self.mover, session.wanted)
            try:
                status.report = work.look(self.pids_of(session))
            except PageferryError as error:
                if error.what != processes.ENDED:
                    raise
                status.alive = False
        status.costs = meter.shares(_SAMPLE_S)
        return status

    def stop(self, pid: int, home: Weights | None = None) -> tuple[Session, Report]:
        """End a session; memory stays where it is, or moves to `home`."""
        session = self.store.require(pid)
        if home is not None:
            check_nodes(home, read_nodes(self.files))
        with lock.hold_damon(self.files):
            # The stored session shows that the kdamond is ours, so stop it first.
            self._drop(session)
        deadline = time.monotonic() + _WORKER_ENDS_S
        while self.has_worker(session) and session.worker != os.getpid():
            if self.files.dry_run or time.monotonic() > deadline:
                break
            time.sleep(_LISTEN_S)
        if home is None or not self._is_alive(session):
            return session, Report()
        pids = self.pids_of(session)
        work = Pass(self.files, self.mover, home, quota=session.quota)
        return session, work.look(pids) if self.files.dry_run else work.run(pids)

    def keep_on(self, pid: int, every_s: float, say: Callable[[Report], None]) -> None:
        """Make a pass every `every_s`, until the session or its process ends."""
        while True:
            session = self.store.find(pid)
            if session is None or not self._is_alive(session):
                return
            pids = self.pids_of(session)
            try:
                say(self._user_pass(session, pids, keep_on=True))
            except PageferryError as error:
                if error.what != processes.ENDED:
                    raise
                return
            rounds, due = session.rounds, time.monotonic() + every_s
            while time.monotonic() < due:
                session = self.store.find(pid)
                if session is None or session.rounds != rounds:
                    break
                time.sleep(min(_LISTEN_S, every_s))

    def has_worker(self, session: Session) -> bool:
        """Say whether a worker process makes passes for this session."""
        return (
            session.worker is not None
            and session.worker_start_time is not None
            and processes.is_alive(
                self.files, session.worker, session.worker_start_time
            )
        )

    def is_running(self, session: Session) -> bool:
        """Say whether a worker or a kdamond still moves pages for this session."""
        if session.by == USER:
            return self.has_worker(session)
        return any(
            kdamond.slot == session.slot and kdamond.pid == session.thread
            for kdamond in self.admin.kdamonds()
            if kdamond.running
        )

    def pids(self, named: Sequence[int], include_children: bool) -> list[int]:
        """List the named processes that still run, with their descendants if asked."""
        known = processes.everybody(self.files) if include_children else []
        found: list[int] = []
        for pid in named:
            process = processes.find(self.files, pid)
            if process is None or process.ended:
                continue
            family = processes.family(pid, known) if include_children else [pid]
            found += [member for member in family if member not in found]
        return found

    def pids_of(self, session: Session) -> list[int]:
        """List the processes of a session that still run, under the same PID."""
        named = [(session.pid, session.start_time)]
        named += zip(session.members, session.member_starts, strict=False)
        same = [
            pid for pid, start in named if processes.is_alive(self.files, pid, start)
        ]
        return self.pids(same, session.include_children)

    def _starts(self, pids: Sequence[int]) -> list[int]:
        """List the start times of processes; 0 for one that has ended."""
        found = (processes.find(self.files, pid) for pid in pids)
        return [0 if process is None else process.start_time for process in found]

    def _is_alive(self, session: Session) -> bool:
        return processes.is_alive(self.files, session.pid, session.start_time)

    def _require_memory(self, pids: list[int]) -> None:
        for pid in pids:
            with Memory(self.files, pid) as memory:
                if memory.areas():
                    return
        raise usage_error(
            "this process has no memory of its own",
            str(pids[0]),
            "it is a kernel thread, or is about to end",
        )

    def _require_allowed(self, pids: list[int], weights: Weights) -> None:
        """Refuse nodes that the cpuset of a process excludes.

        move_pages(2) refuses them, too. DAMON would use them.
        """
        for pid in pids:
            nodes = processes.allowed_nodes(self.files, pid)
            outside = set(weights.targets) - (nodes if nodes else set(weights.targets))
            if outside:
                raise usage_error(
                    "the process may not have memory on this node: its cpuset excludes it",
                    f"process {pid}, node {format_nodes(outside)}",
                    f"grep Mems_allowed_list /proc/{pid}/status",
                )

    def _require_unbound(self, pids: list[int], weights: Weights, by: By) -> None:
        """Refuse DAMON where it would move memory that its owner has bound."""
        why = self._why_bound(pids, weights) if by == KERNEL else None
        if why is not None:
            raise PageferryError(
                "DAMON would move memory that its owner has bound",
                value=str(pids[0]),
                reason=why,
                hint=f"pageferry interleave stop --pid {pids[0]}, then start --by user",
            )

    def _why_bound(self, pids: list[int], weights: Weights) -> str | None:
        for pid in pids:
            for area in placement.bound(self.files, pid, weights.targets):
                nodes = format_nodes(area.nodes)
                return f"process {pid} keeps {area.start:#x} on node {nodes} (mbind)"
        return None

    def _choose(self, request: Request, pids: list[int]) -> tuple[By, str | None]:
        """Choose DAMON or user space; returns the reason against DAMON, if any."""
        if request.by == USER:
            if request.hot:
                raise usage_error(
                    "only DAMON knows what is hot", "--by user", "leave out --hot"
                )
            return USER, None
        admin = self.admin
        able: bool | None = False
        bound = self._why_bound(pids, request.weights)
        if bound is not None and request.by != KERNEL and not request.hot:
            return USER, bound
        self._require_unbound(pids, request.weights, KERNEL)
        admin.require_alone("pageferry interleave start --by user does without DAMON")
        if not admin.is_present():
            why = "it lacks CONFIG_DAMON_VADDR and CONFIG_DAMON_SYSFS"
        else:
            if not self.files.dry_run:
                admin.make_room(takeover=request.takeover)
            able, why = admin.has_dests(), "its schemes have no dests"
        if able is None:
            # Only a write would show `dests`, so a dry run trusts --by.
            able, why = request.by == KERNEL, "only --by kernel shows its writes"
        if able:
            return KERNEL, None
        if request.by == KERNEL or request.hot:
            raise unsupported(
                "DAMON of this kernel cannot spread memory over nodes",
                reason=why,
                hint="leave out --hot and --by kernel to move pages from user space",
            )
        return USER, why

    def _gap(self, pids: Sequence[int]) -> Gap | None:
        return before_heap([self.files.read_or(f"/proc/{p}/maps", "") for p in pids])

    def _start_kernel(self, session: Session, pids: list[int]) -> None:
        admin = self.admin
        weights, hot, quota = session.wanted, session.hot, session.quota
        try:
            admin.make_slots()
            slot = session.slot = admin.free_slot() if admin.kdamonds() else 0

            def begin(pids: tuple[int, ...]) -> int:
                scheme = Scheme(pids, weights, hot, quota, self._gap(pids))
                return admin.start(slot, start_writes(scheme))

            self.store.take_slot(slot)
            # If this command is killed now, the next one knows whose kdamond it is.
            self.store.save(session)
            session.thread, _ = admin.for_living(pids, begin)
        except BaseException:
            if not self.files.dry_run:
                admin.clear_up()
            raise
        self.store.save(session)

    def _user_pass(
        self, session: Session, pids: list[int], *, keep_on: bool = False
    ) -> Report:
        """Make one pass, and store its result in the session."""
        if self.files.dry_run:
            return Pass(self.files, self.mover, session.wanted).look(pids)
        rounds = session.rounds
        if keep_on:
            worker = processes.require(self.files, os.getpid())
            with lock.hold_damon(self.files):
                known = self.store.find(session.pid)
                if known is None or known.rounds != rounds:
                    # `stop` or another `set` came first.
                    return Report()
                session.worker = worker.pid
                session.worker_start_time = worker.start_time
                self.store.save(session)

        def still_wanted() -> bool:
            known = self.store.find(session.pid)
            return known is not None and known.rounds == rounds

        work = Pass(
            self.files,
            self.mover,
            session.wanted,
            quota=session.quota,
            keep_on=still_wanted,
        )
        try:
            work.run(pids)
        finally:
            # Store the moved pages after an error, too.
            with lock.hold_damon(self.files):
                self._add_up(session, work.report)
        return work.report

    def _add_up(self, session: Session, report: Report) -> None:
        """Add the figures of a pass to its session, which another `set` may change."""
        known = self.store.find(session.pid)
        if known is None:
            return
        known.moved_pages += report.moved_pages
        known.unmovable = dict(report.unmovable)
        known.no_room = {str(node): pages for node, pages in report.no_room.items()}
        self.store.save(known)
        session.moved_pages = known.moved_pages
