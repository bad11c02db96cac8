# SPDX-License-Identifier: GPL-2.0-only
"""The service loop: sample nodes and processes, decide, and move memory."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path

from pageferry.balance import metrics, programs
from pageferry.balance.balancer import Balancer, Decision, Kind
from pageferry.balance.config import Config, Program
from pageferry.balance.rule import home_weights
from pageferry.balance.sources import UseSource
from pageferry.errors import PageferryError
from pageferry.interleave.control import KERNEL, USER, Control, Request
from pageferry.interleave.weights import Weights
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import parse_seconds

# Interval of the check whether DAMON has moved all memory home.
_HOME_CHECK_S = 10.0
Say = Callable[[str], None]


class Group:
    """The processes of one [[process]] entry: one session."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.pids: list[int] = []
        # The process that names the session, the oldest; None without a session.
        self.leader: int | None = None
        self.complaint = ""


class Service:
    """One balancer, and the sessions of its processes."""

    def __init__(
        self,
        config: Config,
        files: Files,
        control: Control,
        source: UseSource,
        balancer: Balancer,
        *,
        say: Say,
        dry_run: bool = False,
    ) -> None:
        self.config = config
        self.files = files
        self.control = control
        self.source = source
        self.balancer = balancer
        self.say = say
        self.dry_run = dry_run
        self.groups = [Group(program) for program in config.process]
        self.figures = metrics.Figures(balancer.bandwidth)
        self.listener = metrics.Listener(config.listen) if config.listen else None
        self.decisions: list[dict[str, object]] = []
        self._said: tuple[Kind, str] | None = None
        self._check_home_s = 0.0
        self._again_s = 0.0

    def run(self, interval_s: float, end_s: float | None = None) -> None:
        """Run until a signal, or for `end_s` seconds."""
        begin_s = next_s = time.monotonic()
        try:
            while end_s is None or next_s - begin_s < end_s:
                time.sleep(max(next_s - time.monotonic(), 0.0))
                self.step(time.monotonic())
                # After a long step, such as moving memory, skip missed samples.
                next_s = max(next_s + interval_s, time.monotonic())
        finally:
            self.stop()

    def step(self, now_s: float) -> Decision:
        """Take one sample, decide, and act."""
        self._find_processes()
        use = self.source.read()
        pids = [pid for group in self.groups for pid in group.pids]
        memory_bytes = programs.resident_bytes(self.files, pids)
        decision = self._decide(now_s, use, memory_bytes, bool(pids))
        self._explain(decision)
        if decision.weights is not None:
            moved = self._apply(decision.weights, decision)
            self.balancer.done(time.monotonic(), decision.weights, moved)
            self._again_s = now_s + parse_seconds(self.config.again)
        self._bring_home(now_s)
        self._see_to_new_memory(now_s)
        self.figures.use = use
        self.figures.weights = self.balancer.weights
        self.figures.processes = len(pids)
        self.figures.memory_bytes = memory_bytes
        self._publish()
        return decision

    def stop(self) -> None:
        """End all sessions; memory stays or moves home, as configured."""
        home = self._home_weights() if self.config.on_stop == "home" else None
        for group in self.groups:
            if group.leader is None or self.control.store.find(group.leader) is None:
                continue
            try:
                self.control.stop(group.leader, home)
            except PageferryError as error:
                self._complain(group, error)
            group.leader = None
        where = "stays where it is" if home is None else "is at home"
        self.say(f"stopped: memory {where}")
        if self.listener is not None:
            self.listener.close()

    def _decide(
        self, now_s: float, use: Mapping[int, float], memory_bytes: int, anybody: bool
    ) -> Decision:
        """Let the balancer decide, if any process runs."""
        if anybody:
            return self.balancer.step(now_s, use, memory_bytes)
        if not self.balancer.is_home:
            # The next processes begin at home.
            nodes = list(self.balancer.bandwidth)
            self.balancer.done(now_s, home_weights(nodes, self.balancer.home), 0)
        return Decision(Kind.STAY_HOME, "none of the processes is running")

    def _home_weights(self) -> Weights:
        return Weights(((self.balancer.home, 1),))

    def _find_processes(self) -> None:
        """Add new processes, and end sessions whose process has ended."""
        for group in self.groups:
            before = group.pids
            group.pids = programs.find(self.files, group.program)
            if group.leader is not None and group.leader not in group.pids:
                if not self.dry_run and self.control.store.find(group.leader):
                    self.control.stop(group.leader)
                group.leader = None
            if group.pids == before or self.dry_run:
                continue
            if group.pids and not self.balancer.is_home:
                self._settle(group, self.balancer.weights)

    def _apply(self, weights: Weights, decision: Decision) -> int:
        """Set the weights of all groups; returns the bytes that move."""
        if self.dry_run:
            return decision.moves_bytes
        found = [self._settle(group, weights) for group in self.groups if group.pids]
        # DAMON has only begun, so use the expected bytes.
        known = [moved for moved in found if moved is not None]
        moved = sum(known) if len(known) == len(found) else decision.moves_bytes
        self.figures.changes[decision.kind.value] += 1
        self.figures.gain = decision.gain
        self.figures.moved_bytes += moved
        return moved

    def _settle(self, group: Group, weights: Weights) -> int | None:
        """Set the weights of one group; an error does not stop the other groups."""
        leader, others = group.pids[0], tuple(group.pids[1:])
        try:
            if group.leader is None:
                outcome = self.control.start(
                    Request(
                        pid=leader,
                        members=others,
                        weights=weights,
                        quota=self.config.move_quota,
                        by=self.config.by,
                    )
                )
                group.leader = leader
            else:
                rest = tuple(pid for pid in group.pids if pid != group.leader)
                outcome = self.control.set(group.leader, weights, members=rest)
        except PageferryError as error:
            self._complain(group, error)
            return 0
        group.complaint = ""
        if outcome.report is None:
            return None
        if outcome.report.no_room:
            self.say(f"{group.program}: not all of it fits")
        return outcome.report.moved_pages * PAGE

    def _bring_home(self, now_s: float) -> None:
        """End the sessions whose memory is home again."""
        if not self.balancer.is_home or now_s < self._check_home_s or self.dry_run:
            return
        self._check_home_s = now_s + _HOME_CHECK_S
        for group in self.groups:
            if group.leader is None:
                continue
            try:
                session = self.control.store.require(group.leader)
                left = 0
                if session.by == KERNEL:
                    left = self.control.status(group.leader).report.left_pages
                if not left:
                    self.control.stop(group.leader)
                    group.leader = None
            except PageferryError as error:
                self._complain(group, error)

    def _see_to_new_memory(self, now_s: float) -> None:
        """Make another pass over sessions in user space, for their new memory."""
        if self.balancer.is_home or now_s < self._again_s or self.dry_run:
            return
        self._again_s = now_s + parse_seconds(self.config.again)
        for group in self.groups:
            session = group.leader and self.control.store.find(group.leader)
            if session and session.by == USER:
                moved = self._settle(group, self.balancer.weights)
                self.figures.moved_bytes += moved or 0

    def _explain(self, decision: Decision) -> None:
        """Print a decision, unless it is of the same kind as the last one."""
        text = decision.why if decision.weights is not None else decision.kind.value
        text += "" if any(group.pids for group in self.groups) else ", no process"
        if self._said == (decision.kind, text):
            return
        self._said = (decision.kind, text)
        self.decisions.append({"kind": decision.kind.value, "why": decision.why})
        self.say(decision.why)

    def _complain(self, group: Group, error: PageferryError) -> None:
        """Print an error, unless it is the last one of the group."""
        self.figures.failures += 1
        text = error.line()
        if text != group.complaint:
            group.complaint = text
            hint = f" ({error.hint})" if error.hint else ""
            self.say(f"{group.program}: {text}{hint}")

    def _publish(self) -> None:
        text = metrics.render(self.figures)
        if self.listener is not None:
            self.listener.text = text
        if self.config.metrics is None:
            return
        try:
            metrics.write(Path(self.config.metrics), text)
        except OSError as error:
            # The disk may be full. Go on without the file.
            self.say(f"cannot write {self.config.metrics}: {error.strerror}")
            self.config.metrics = None
