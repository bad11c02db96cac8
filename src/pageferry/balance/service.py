# SPDX-License-Identifier: GPL-2.0-only
"""The service loop: sample nodes and processes, decide, and move memory."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Mapping
from pathlib import Path

import msgspec

from pageferry import proc
from pageferry.backoff import Backoff
from pageferry.balance import metrics, programs
from pageferry.balance.balancer import Balancer, Decision, Kind
from pageferry.balance.config import Config, Program
from pageferry.balance.rule import SLIGHT, distance, home_weights
from pageferry.balance.sources import UseSource
from pageferry.balance.strays import Strays
from pageferry.errors import PageferryError
from pageferry.interleave.control import KERNEL, USER, Control, Request
from pageferry.interleave.weights import Weights
from pageferry.sysfs import processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.pagebits import PAGE
from pageferry.units import parse_seconds

# Looking at the placement takes at most this part of a CPU.
_LOOK_SHARE = 0.01
# The owner of our sessions; a new service takes over those of a killed one.
OWNER = "balance"
# The spent budget. The clock of its times and this file both begin with the boot.
_BUDGET = "/run/pageferry/balance.json"
Say = Callable[[str], None]


class Group:
    """The processes of one [[process]] entry: one session."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.pids: list[int] = []
        # The process that names the session, the oldest; None without a session.
        self.leader: int | None = None
        self.complaint = ""
        # Whether its session may still move memory, and by DAMON.
        self.awake = False
        self.by_damon = True
        self.tries = Backoff()
        # When each process was first seen, by PID and start time.
        self.seen: dict[tuple[int, int], float] = {}


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
        self._waiting = ""
        # Measures the cost of looks; tests replace it.
        self.stopwatch: Callable[[], float] = time.monotonic
        self._again_s = parse_seconds(config.again)
        # The last look at the placement, and the time of the next one.
        self._shares: dict[int, float] | None = None
        self._next_look_s = 0.0
        # The least memory since the last pass, and the time of the next one.
        self._memory_at_pass = 0
        self._next_pass_s = 0.0
        self._strays = Strays()
        # Bytes that the last move may cost, and that it has cost so far.
        self._charged_bytes = 0
        self._moved_bytes = 0
        # Whether a session ended before its moved bytes were read.
        self._lost_count = False
        # Until then DAMON places new memory, and the rest of a move.
        self._awake_until_s = 0.0
        # The file of the budget, and the budget as the file has it.
        self._ledger: Path | None = None
        self._saved: list[tuple[float, int]] = []
        # Files whose last write has failed.
        self._unwritten: set[Path] = set()
        if not dry_run:
            self._adopt()
            self._load_budget()

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
        self._find_processes(now_s)
        use = self.source.read()
        pids = [pid for group in self.groups for pid in group.pids]
        memory_bytes = processes.resident_bytes(self.files, pids)
        fresh = self._look(now_s, pids)
        moved = self.balancer.is_moving
        decision = self._decide(now_s, use, memory_bytes, bool(pids), fresh)
        if moved and not self.balancer.is_moving:
            # The balancer waits for 95%. DAMON moves the rest in this time.
            self._awake_until_s = now_s + self._again_s
        self._explain(decision)
        if decision.weights is not None:
            self._apply(now_s, decision.weights, decision)
            self._next_pass_s = now_s + self._again_s
            self._memory_at_pass = memory_bytes
        self._catch_up(now_s)
        self._finish(now_s)
        self._see_to_new_memory(now_s, memory_bytes)
        self.figures.use = use
        self.figures.weights = self.balancer.weights
        self.figures.processes = len(pids)
        self.figures.memory_bytes = memory_bytes
        self._publish()
        self._save_budget()
        return decision

    def stop(self) -> None:
        """End all sessions; memory stays or moves home, as configured."""
        home = self._home_weights() if self.config.on_stop == "home" else None
        at_home = False
        try:
            if home is not None:
                arrived = [self._end(group, home) for group in self.groups]
                at_home = all(arrived)
        except KeyboardInterrupt:
            # A second signal ends the way home.
            pass
        with proc.signals_held():
            ended = [self._end(group, None) for group in self.groups]
            where = "is at home" if at_home else "stays where it is"
            if all(ended):
                self.say(f"stopped: memory {where}")
            else:
                self.say("memory may still move: see pageferry interleave status")
            if self.listener is not None:
                self.listener.close()

    def _end(self, group: Group, home: Weights | None) -> bool:
        """End the session of a group; the next call does nothing unless this fails."""
        if group.leader is None or self.control.store.find(group.leader) is None:
            return True
        try:
            self.control.stop(group.leader, home)
        except PageferryError as error:
            self._complain(group, error)
            return False
        group.leader = None
        return True

    def _adopt(self) -> None:
        """Take over the sessions of a service that was killed."""
        for session in self.control.store.all():
            if session.owner != OWNER:
                continue
            for group in self.groups:
                found = programs.find(self.files, group.program)
                if (session.pid, session.start_time) in [
                    (p.pid, p.start_time) for p in found
                ]:
                    group.leader = session.pid
                    group.pids = [session.pid, *session.members]
                    group.seen = {(p.pid, p.start_time): 0.0 for p in found}
                    group.awake = not session.resting
                    group.by_damon = session.by == KERNEL
                    moving = any(each.awake and each.by_damon for each in self.groups)
                    self.balancer.reset(session.wanted, moving=moving)
                    self.say(f"{group.program}: goes on with {session.wanted}")
                    break
            else:
                self.control.drop(session.pid)

    def _load_budget(self) -> None:
        """Go on with the budget of the last service since boot."""
        self._ledger = self.files.path(_BUDGET)
        with contextlib.suppress(OSError, msgspec.MsgspecError):
            text = self._ledger.read_bytes()
            self._saved = msgspec.json.decode(text, type=list[tuple[float, int]])
            self.balancer.budget.spent = list(self._saved)

    def _save_budget(self) -> None:
        spent = self.balancer.budget.spent
        if self._ledger is None or spent == self._saved:
            return
        text = msgspec.json.encode(spent).decode() + "\n"
        if self._write(self._ledger, text):
            self._saved = list(spent)

    def _decide(
        self,
        now_s: float,
        use: Mapping[int, float],
        memory_bytes: int,
        anybody: bool,
        fresh: bool,
    ) -> Decision:
        """Let the balancer decide, if any process has memory that may move."""
        if anybody and self._shares != {}:
            return self.balancer.step(
                now_s, use, memory_bytes, self._shares, fresh=fresh
            )
        # The first look at the next processes tells where their memory is.
        nodes = list(self.balancer.bandwidth)
        self.balancer.reset(home_weights(nodes, self.balancer.home))
        why = "their owners have bound all memory of the processes"
        return Decision(
            Kind.STAY_HOME, why if anybody else "none of the processes is running"
        )

    def _home_weights(self) -> Weights:
        return Weights(((self.balancer.home, 1),))

    def _look(self, now_s: float, pids: list[int]) -> bool:
        """Measure the placement: often during a move, and rarely otherwise.

        Return whether the shares are those of now.
        """
        if self.dry_run or not pids:
            self._shares = None
            return True
        if now_s < self._next_look_s and self._shares is not None:
            return False
        begin_s = self.stopwatch()
        found = self.control.placed(pids, self.balancer.bandwidth)
        if found is not None:
            self._shares = found
            self._strays.look(distance(found, self.balancer.weights.shares))
        self._mind(now_s)
        took_s = self.stopwatch() - begin_s
        busy = any(group.awake for group in self.groups)
        self._next_look_s = now_s + max(
            0.0 if busy else self._again_s, took_s / _LOOK_SHARE
        )
        return True

    def _find_processes(self, now_s: float) -> None:
        """Add processes that stay, and end sessions whose process has ended."""
        for group in self.groups:
            found = programs.find(self.files, group.program)
            seen = {
                (p.pid, p.start_time): group.seen.get((p.pid, p.start_time), now_s)
                for p in found
            }
            known = set(group.seen)
            group.seen = seen
            # A child that ends at once is not worth a change of the session.
            stays_s = 0.0 if group.leader is None else self.balancer.settings.hold_s
            before = group.pids
            ready = [
                pid
                for (pid, _), since_s in seen.items()
                if pid in before or now_s - since_s >= stays_s
            ]
            leader_ended = group.leader is not None and not any(
                pid == group.leader and (pid, start) in known for pid, start in seen
            )
            if leader_ended and not self._drop(group):
                # Its kdamond may still run, so the next step tries again.
                group.pids = [pid for pid in ready if pid in before]
                continue
            if self.dry_run or self.balancer.is_home:
                group.pids = ready
                continue
            group.pids = [pid for pid in ready if pid in before]
            joined = self._let_in(now_s, [pid for pid in ready if pid not in before])
            # Keep the order: the oldest process names the session.
            group.pids = [pid for pid in ready if pid in (*group.pids, *joined)]
            if group.pids and (leader_ended or joined):
                self._settle(now_s, group, self.balancer.weights)

    def _let_in(self, now_s: float, pids: list[int]) -> list[int]:
        """Return new processes, if the budget covers the move of their memory.

        Until then they stay at home, and their traffic counts as that of others.
        """
        if not pids:
            return []
        members = [pid for group in self.groups for pid in group.pids]
        memory_bytes = processes.resident_bytes(self.files, [*members, *pids])
        new_bytes = processes.resident_bytes(self.files, pids)
        moves = int((1 - self.balancer.weights.share(self.balancer.home)) * new_bytes)
        if not self.balancer.admits(now_s, memory_bytes, moves):
            self._say_waiting("new processes wait at home")
            return []
        self._begin_pass(now_s, memory_bytes, moves)
        return pids

    def _begin_pass(self, now_s: float, memory_bytes: int, moves_bytes: int) -> None:
        """Charge a move of new memory, and keep DAMON awake for it."""
        self.balancer.spent(now_s, moves_bytes)
        self._charged_bytes += moves_bytes
        self._waiting = ""
        self._memory_at_pass = memory_bytes
        self._next_pass_s = self._awake_until_s = now_s + self._again_s
        self._strays.begin()

    def _mind(self, now_s: float) -> None:
        """While DAMON runs, look for memory that its owner has bound meanwhile."""
        for group in self.groups:
            if group.leader is None or not group.awake:
                continue
            try:
                self.control.mind(group.leader)
            except PageferryError as error:
                self._complain(group, error)
                # Another start moves what its owner has not bound, from user space.
                self._drop(group)
                group.tries.fail(now_s)
                group.tries.again_s = now_s

    def _apply(self, now_s: float, weights: Weights, decision: Decision) -> None:
        """Set the weights of all groups. Without a success, nothing has changed."""
        if self.dry_run:
            self.balancer.started(now_s, weights, decision.moves_bytes)
            return
        groups = [group for group in self.groups if group.pids]
        self._moved_bytes = 0
        found = [self._settle(now_s, group, weights) for group in groups]
        if not any(found):
            self.balancer.failed(now_s)
            return
        # The budget counts the expected bytes, because DAMON has only begun.
        self.balancer.started(now_s, weights, decision.moves_bytes)
        self._charged_bytes = decision.moves_bytes
        self._next_look_s = 0.0
        self._strays = Strays()
        self.figures.changes[decision.kind.value] += 1
        self.figures.gain = decision.gain

    def _catch_up(self, now_s: float) -> None:
        """Try groups again whose last change failed."""
        for group in self.groups:
            due = group.tries.failures and now_s >= group.tries.again_s
            if due and group.pids and not self.balancer.is_home and not self.dry_run:
                self._settle(now_s, group, self.balancer.weights)

    def _settle(self, now_s: float, group: Group, weights: Weights) -> bool:
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
                        owner=OWNER,
                    )
                )
                group.leader = leader
            else:
                rest = tuple(pid for pid in group.pids if pid != group.leader)
                outcome = self.control.set(group.leader, weights, members=rest)
        except PageferryError as error:
            self._complain(group, error)
            group.tries.fail(now_s)
            self._lost_count = True
            if group.leader is not None and not self._runs(group.leader):
                # Its kdamond has stopped. The next try starts another one.
                self._drop(group)
            return False
        group.tries.succeed()
        group.complaint, group.awake = "", True
        group.by_damon = outcome.session.by == KERNEL
        if outcome.report is not None:
            self._moved_bytes += outcome.report.moved_pages * PAGE
            if outcome.report.no_room:
                self.say(f"{group.program}: not all of it fits")
        return True

    def _drop(self, group: Group) -> bool:
        """End the session of a group without a look at its moved bytes."""
        assert group.leader is not None
        try:
            if not self.dry_run:
                self.control.drop(group.leader)
        except PageferryError as error:
            self._complain(group, error)
            return False
        group.leader = None
        self._lost_count = True
        return True

    def _runs(self, leader: int) -> bool:
        session = self.control.store.find(leader)
        return session is not None and (
            session.by == USER or self.control.is_running(session)
        )

    def _finish(self, now_s: float) -> None:
        """After a move, end the sessions at home, and let DAMON rest for the others."""
        if self.balancer.is_moving or self.dry_run:
            return
        for group in self.groups:
            if group.leader is None or not group.awake:
                continue
            if group.by_damon and now_s < self._awake_until_s:
                return
            try:
                self._lost_count |= not self._runs(group.leader)
                self._moved_bytes += self.control.rest(group.leader)
                if self.balancer.is_home:
                    self.control.drop(group.leader)
                    group.leader = None
                group.awake = False
            except PageferryError as error:
                self._complain(group, error)
                group.tries.fail(now_s)
                self._lost_count = True
            self._strays.end()
        self._settle_accounts(now_s)

    def _settle_accounts(self, now_s: float) -> None:
        """Charge the bytes that have moved, instead of those that were expected."""
        # Memory that came during the move may have moved, too.
        more = self._moved_bytes - self._charged_bytes
        if more > 0:
            self.balancer.spent(now_s, more)
        elif not self._lost_count:
            self.balancer.refund(-more)
        self.figures.moved_bytes += self._moved_bytes
        self._charged_bytes = self._moved_bytes = 0
        self._lost_count = False

    def _see_to_new_memory(self, now_s: float, memory_bytes: int) -> None:
        """Place new memory, if the budget covers it."""
        self._memory_at_pass = min(self._memory_at_pass, memory_bytes)
        if self.balancer.is_home or self.balancer.is_moving or self.dry_run:
            return
        wanted = self.balancer.weights
        grown = memory_bytes - self._memory_at_pass
        strayed = int(self._strays.share * memory_bytes)
        moves = max(int(grown * (1 - wanted.share(self.balancer.home))), strayed)
        if now_s < self._next_pass_s or moves <= SLIGHT * memory_bytes:
            return
        if not self.balancer.admits(now_s, memory_bytes, moves):
            self._say_waiting("new memory waits at home")
            return
        self._begin_pass(now_s, memory_bytes, moves)
        for group in self.groups:
            if group.leader is not None and not group.tries.failures:
                self._settle(now_s, group, wanted)

    def _say_waiting(self, text: str) -> None:
        """Say once which memory waits for the budget."""
        if self._waiting != text:
            self._waiting = text
            self.say(f"{text}: the budget does not cover it, and the way back")

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
        self._write(Path(self.config.metrics), text)

    def _write(self, path: Path, text: str) -> bool:
        """Replace a file. The disk may be full, so the next sample tries again."""
        try:
            metrics.write(path, text)
        except OSError as error:
            if path not in self._unwritten:
                self.say(f"cannot write {path}: {error.strerror}")
            self._unwritten.add(path)
            return False
        self._unwritten.discard(path)
        return True
