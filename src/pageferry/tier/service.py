# SPDX-License-Identifier: GPL-2.0-only
"""The service loop: plan kdamonds, and steer their rate."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence

from pageferry import proc
from pageferry.backoff import Backoff
from pageferry.balance import programs
from pageferry.errors import PageferryError, unsupported, usage_error
from pageferry.interleave import lock
from pageferry.interleave.moving import PageMover
from pageferry.sysfs import memory, processes
from pageferry.sysfs.files import Files
from pageferry.sysfs.processes import Process
from pageferry.tier import control, machine, plan
from pageferry.tier.config import Config
from pageferry.tier.control import Control, Done, Setting
from pageferry.tier.kdamonds import Kdamonds
from pageferry.tier.owners import Owners
from pageferry.tier.plan import Rates, Watch
from pageferry.tier.sampler import Sampler
from pageferry.tier.steer import Steering
from pageferry.tier.writes import Features
from pageferry.units import format_rate, format_size, parse_seconds

# After this time, kdamonds that ran until then no longer count as failing.
_PROVEN_S = 60.0
Say = Callable[[str], None]


class Service:
    """Keeps hot memory on fast nodes, and cold memory on slow ones."""

    def __init__(
        self, config: Config, files: Files, mover: PageMover, say: Say
    ) -> None:
        self.config = config
        self.files = files
        self.say = say
        self.tiers = machine.find_tiers(files, config.tiers)
        self.kdamonds = Kdamonds(files)
        if self.kdamonds.state.threads and not files.dry_run:
            self.kdamonds.stop()
            say("stopped the kdamonds of a service that was killed")
        # This makes a scheme for a moment, which a start of `interleave` would take for
        # that of another program.
        with lock.hold_damon(files):
            features = self.kdamonds.find_features()
        self._require_features(features)
        self.control = Control(
            parse_seconds(config.cold_after), exchanges=machine.can_exchange(files)
        )
        self.owners = Owners(files, self.tiers, virtual=bool(config.process))
        self.steering = Steering(config.stall)
        tier_of = {node: at for at, node in enumerate(self.tiers)}
        self.sampler = Sampler(files, mover, tier_of)
        self._waited_s = machine.waited_s(files)
        self._before_s: float | None = None
        self._looked_s: float | None = None
        self._step_s = 0.0
        self._tries = Backoff()
        # The processes that are left out now, with the reasons.
        self._left_out: set[str] = set()
        # Lines may name processes, of which there are ever more.
        self._said: deque[str] = deque(maxlen=64)

    def run(self, interval_s: float, end_s: float | None = None) -> None:
        """Run until a signal, or for `end_s` seconds."""
        begin_s = next_s = time.monotonic()
        try:
            while end_s is None or time.monotonic() - begin_s < end_s:
                now_s = time.monotonic()
                if now_s >= next_s:
                    # A step takes long on a busy machine, and no look is within it.
                    self.look(now_s, ahead_s=self._step_s)
                    self.step(now_s)
                    self._step_s = time.monotonic() - now_s
                    next_s = max(next_s + interval_s, time.monotonic())
                else:
                    self.look(now_s)
                pause_s = control.LOOK_S if self.control.busy else control.IDLE_LOOK_S
                wake_s = min(now_s + pause_s, next_s)
                time.sleep(max(wake_s - time.monotonic(), 0.0))
        finally:
            # A second Ctrl-C must not leave a kdamond without a goal.
            with proc.signals_held():
                self.stop()

    def step(self, now_s: float) -> None:
        """Look at processes and nodes, and set kdamonds and the rate."""
        members = self._find_processes()
        try:
            self._arrange(now_s, members)
        except PageferryError as error:
            self._fail(now_s, error)
        self.look(now_s)
        # The first sample takes long, and the next look comes soon.
        self._steer(now_s, [each.pid for each in members])
        try:
            self.kdamonds.save()
        except PageferryError as error:
            self._say_new(error.line())

    def look(self, now_s: float, ahead_s: float = 0.0) -> None:
        """Set what kdamonds do until the next look, by what is left to do."""
        before_s, self._looked_s = self._looked_s, now_s
        # The next look may be as late as this one.
        look_s = max(ahead_s, 0.0 if before_s is None else now_s - before_s)
        if self.files.dry_run or not self.kdamonds.watches:
            return
        try:
            if not self.kdamonds.is_running():
                # Another program may use DAMON now.
                return
            done = self.kdamonds.count()
            found = self._settings(self.kdamonds.watches, done, look_s)
            self.kdamonds.set(found)
        except PageferryError as error:
            # The kdamond may have ended with its processes. The next step looks.
            self._say_new(error.line())

    def _settings(
        self,
        watches: Sequence[Watch],
        done: Mapping[tuple[int, int], Done],
        look_s: float,
    ) -> list[Setting]:
        return self.control.look(
            watches,
            machine.free_and_total(self.files),
            self.rates,
            done,
            look_s=max(look_s, control.LOOK_S),
            least=self.steering.wary,
        )

    def _fail(self, now_s: float, error: PageferryError) -> None:
        """Stop what runs, because the plan is not in force. Try again later."""
        self._tries.fail(now_s)
        self._say_new(f"{error.line()} ({error.hint})" if error.hint else error.line())
        try:
            self.kdamonds.stop()
        except PageferryError as another:
            # The next try stops it first.
            self._say_new(another.line())

    def stop(self) -> None:
        """Stop all kdamonds; memory stays where it is."""
        self.kdamonds.close()
        state = self.kdamonds.state
        self.say(
            f"stopped: {format_size(state.promoted_bytes)} went up, "
            f"{format_size(state.demoted_bytes)} went down; memory stays where it is"
        )

    @property
    def rates(self) -> Rates:
        """Return the rates in force."""
        most = self.config.limit.bytes_per_s
        return Rates(int(most * self.steering.part), int(most))

    def _require_features(self, features: Features | None) -> None:
        """Refuse a kernel that lacks something; None: others hide what it has."""
        if self.config.process and len(self.tiers) > 2:
            raise usage_error(
                "processes have two tiers",
                f"nodes {self.tiers}",
                "leave out [[process]], or name the nodes of two tiers",
            )
        missing = None
        if features is None:
            return
        if not features.target_nid:
            missing = "it has no action migrate_hot: Linux 6.11 and later have it"
        elif not features.dests and self.config.process:
            missing = (
                "it moves only physical memory; Linux 6.17 and pageferry's 6.12 more"
            )
        if missing and not self.files.dry_run:
            raise unsupported(
                "DAMON of this kernel cannot serve these tiers",
                f"nodes {self.tiers}",
                missing,
                "leave out [[process]]" if self.config.process else None,
            )

    def _find_processes(self) -> list[Process]:
        """List the processes, the oldest first.

        DAMON knows a process by its place in the list. A new one comes last, so all others
        keep what DAMON has learned of them.
        """
        if self.config.process:
            groups = [programs.find(self.files, p) for p in self.config.process]
            found = {each.pid: each for group in groups for each in group}
            # A program may have started this service.
            found.pop(self.kdamonds.pid, None)
        else:
            everybody = processes.everybody(self.files)
            found = {p.pid: p for p in everybody if not (p.ended or p.kernel_thread)}
        return sorted(found.values(), key=lambda each: (each.start_time, each.pid))

    def _arrange(self, now_s: float, members: Sequence[Process]) -> None:
        """Start, change or stop kdamonds, if the plan has changed."""
        lost = not self.kdamonds.is_running()
        alive = {each.pid for each in members}
        if lost and any(
            watch.node is not None or alive & set(watch.pids)
            for watch in self.kdamonds.watches
        ):
            # Begin again later: it may stop each time.
            raise PageferryError(
                "a kdamond has stopped", reason="another program has stopped it"
            )
        if now_s < self._tries.again_s:
            return
        self.owners.look(now_s, members)
        wanted = self._plan()
        now = self.kdamonds.watches
        if wanted == now:
            if self._tries.failures and now_s > self._tries.again_s + _PROVEN_S:
                self._tries.succeed()
                # The next failure is another one.
                self._said.clear()
            return
        if (
            not lost
            and len(now) == len(wanted) == 1
            and now[0].moves == wanted[0].moves
            # Other physical addresses need another kdamond.
            and now[0].node is None
        ):
            self.kdamonds.retarget(wanted[0])
            return
        self.control.begin()
        settings = self._settings(wanted, {}, control.LOOK_S)
        self.kdamonds.start(wanted, settings, self._require_features)
        self._explain(wanted)

    def _plan(self) -> list[Watch]:
        up = not machine.kernel_promotes(self.files)
        headroom = self.config.headroom
        if not self.config.process:
            if self.owners.obstacle:
                raise PageferryError(
                    "DAMON would move memory that its owner keeps elsewhere",
                    reason=self.owners.obstacle,
                    hint="name the other programs with [[process]]",
                )
            ranges = machine.ranges_of(self.files, self.tiers)
            return plan.physical(self.tiers, ranges, headroom, up=up)
        pids, keep, left_out = self.owners.divide()
        for why in left_out:
            if why not in self._left_out:
                self.say(f"left out: {why}")
        self._left_out = set(left_out)
        if not pids:
            self._say_new("none of the processes is running")
            return []
        return [plan.virtual(self.tiers, pids, keep, headroom, up=up)]

    def _steer(self, now_s: float, pids: Sequence[int]) -> None:
        """Set the highest rate by what the last interval has cost."""
        seen = self.sampler.look(now_s, pids)
        before_s, self._before_s = self._before_s, now_s
        waited_s, before = machine.waited_s(self.files), self._waited_s
        self._waited_s = waited_s
        if before_s is None or now_s <= before_s or not self.kdamonds.watches:
            stall = 0.0
        else:
            stall = (waited_s - before) / (now_s - before_s)
        part = self.steering.part
        self.steering.step(now_s, seen, stall)
        state = self.kdamonds.state
        state.rate_part = self.steering.part
        state.sampled_pages = self.sampler.count
        state.sampled_promotions += seen.promoted
        state.sampled_ping_pong += seen.ping_pong
        if self.steering.part != part:
            why = f"{self.steering.why}: " if self.steering.why else ""
            rate = format_rate(self.rates.up)
            self.say(f"{why}the rate of promotion is now {rate}")

    def _explain(self, wanted: Sequence[Watch]) -> None:
        if not wanted:
            return
        names = " > ".join(map(str, self.tiers))
        up = any(move.hot for watch in wanted for move in watch.moves)
        who = "DAMON" if up else "NUMA balancing (numa_balancing has 2)"
        self._say_new(f"tiers {names}; {who} promotes")
        text = (
            f"DAMON demotes to keep {self.config.headroom:.0%} of each faster tier free"
        )
        if memory.demotes(self.files):
            text += "; reclaim demotes if a node is short of memory all the same"
        if self.control.exchanges:
            text += "; if all tiers are full, hot and cold memory change places"
        self._say_new(text)

    def _say_new(self, text: str) -> None:
        """Print a line that was not printed before."""
        if text not in self._said:
            self._said.append(text)
            self.say(text)
