# SPDX-License-Identifier: GPL-2.0-only
"""The pipeline, event by event: one CPU, and the channels of the engines.

A migration is a sequence of windows. The CPU unmaps a window and submits it to the
channels, which copy. The CPU then moves the copied folios. There are two kinds of
events: the CPU finishes a step, or a channel finishes a job. Between two events every
rate is constant.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

from pageferry.model.constants import Machine


@dataclass(frozen=True)
class Plan:
    """How a design works through its folios."""

    folio_bytes: int
    folios: int
    channels: int  # 0: the CPU copies, folio by folio
    window_folios: int
    depth: int = 1  # windows that may be unmapped at once
    streaming: bool = False  # move each folio when its own copy is complete
    split: bool = False  # spread one folio over all channels


class Reach(NamedTuple):
    """Unmapped times of some folios: first_ns, then step_ns more for each."""

    first_ns: float
    step_ns: float
    folios: int

    def times(self) -> list[float]:
        """Return the time of each folio."""
        return [self.first_ns + self.step_ns * i for i in range(self.folios)]


@dataclass
class Outcome:
    """The result of a run."""

    total_ns: float = 0.0
    first_folio_ns: float = 0.0  # since the start of its batch, as published
    copied_bytes: int = 0
    moved_folios: int = 0
    cpu_busy_ns: float = 0.0
    most_unmapped: int = 0
    reach: list[Reach] = field(default_factory=list)


class Job:
    """The part of one or several folios of a window that one channel copies."""

    def __init__(
        self, window: Window, first: int, folios: int, size: int, alone: float
    ) -> None:
        self.window = window
        self.first = first
        self.folios = folios
        self.size = size
        self.left = float(size)
        self.alone = alone


@dataclass
class Window:
    """Folios that are unmapped together."""

    folios: int
    start_ns: float
    jobs_left: int = 0
    # With streaming: the remaining jobs of each folio.
    folio_jobs_left: dict[int, int] = field(default_factory=dict)
    moved: int = 0


class Channels:
    """The channels with their queues and rates."""

    def __init__(self, machine: Machine, count: int) -> None:
        self.machine = machine
        self.queues: list[deque[Job]] = [deque() for _ in range(count)]
        self.rates: list[float] = [0.0] * count
        self.copied_bytes = 0

    def submit(self, channel: int, job: Job) -> None:
        """Queue a job; the caller calls share() afterwards."""
        self.queues[channel].append(job)

    def share(self) -> None:
        """Compute the rate of each channel, in bytes per ns."""
        per = self.machine.channels_per_controller
        count = len(self.queues)
        for low in range(0, count, per):
            members = range(low, min(low + per, count))
            busy = [i for i in members if self.queues[i]]
            part = self.machine.controller_bytes_per_s / 1e9 / max(len(busy), 1)
            for i in members:
                queue = self.queues[i]
                self.rates[i] = min(queue[0].alone, part) if queue else 0.0
        total = sum(self.rates)
        memory = self.machine.memory_bytes_per_s / 1e9
        if total > memory:
            self.rates = [rate * memory / total for rate in self.rates]

    def next_ns(self) -> float | None:
        """Time until a job ends; None if all channels are idle."""
        waits = [
            queue[0].left / rate
            for queue, rate in zip(self.queues, self.rates, strict=True)
            if queue
        ]
        return min(waits, default=None)

    def advance(self, ns: float) -> list[Job]:
        """Copy for `ns`, and return the jobs that ended."""
        ended = []
        for queue, rate in zip(self.queues, self.rates, strict=True):
            if not queue:
                continue
            job = queue[0]
            job.left -= ns * rate
            # Rounding may leave a millionth of the job.
            if job.left <= 1e-6 * max(job.size, 1):
                self.copied_bytes += job.size
                ended.append(queue.popleft())
        if ended:
            self.share()
        return ended


class Pipeline:
    """One run of one plan on one machine."""

    def __init__(self, machine: Machine, plan: Plan) -> None:
        self.machine = machine
        self.plan = plan
        self.channels = Channels(machine, plan.channels)
        self.outcome = Outcome()
        self.now = 0.0
        self.to_unmap = plan.folios
        self.open = 0
        self.unmapped = 0
        self.window_ready: deque[Window] = deque()
        self.folio_ready: deque[tuple[Window, int]] = deque()
        self.cost_ns = machine.unmap_ns + machine.describe_ns
        self.move_ns = machine.move_ns(plan.folio_bytes)

    def run(self) -> Outcome:
        """Simulate until the last folio is moved."""
        if self.plan.channels == 0:
            return self._run_on_cpu()
        while self.outcome.moved_folios < self.plan.folios:
            if self.folio_ready:
                self._move_folio()
            elif self.window_ready:
                self._move_window()
            elif self.to_unmap and self.open < self.plan.depth:
                self._unmap_window()
            else:
                wait = self.channels.next_ns()
                assert wait is not None, "the pipeline has stalled"
                self._pass(wait)
        self.outcome.total_ns = self.now
        self.outcome.copied_bytes = self.channels.copied_bytes
        return self.outcome

    def _run_on_cpu(self) -> Outcome:
        """Stock Linux: unmap a batch, then copy and move folio by folio."""
        machine, plan, out = self.machine, self.plan, self.outcome
        each = machine.copy_ns(plan.folio_bytes) + self.move_ns
        left = plan.folios
        while left:
            folios = min(left, plan.window_folios)
            first = folios * machine.unmap_ns + each
            if left == plan.folios:
                out.first_folio_ns = first
            step = each - machine.unmap_ns
            out.reach.append(Reach(first - machine.unmap_ns, step, folios))
            out.most_unmapped = max(out.most_unmapped, folios)
            out.total_ns += first + (folios - 1) * each + machine.finish_ns
            left -= folios
        out.moved_folios = plan.folios
        out.copied_bytes = plan.folios * plan.folio_bytes
        out.cpu_busy_ns = out.total_ns
        return out

    def _pass(self, ns: float) -> None:
        """Advance the time, and handle each job that ends meanwhile."""
        end = self.now + ns
        while True:
            wait = self.channels.next_ns()
            if wait is None or self.now + wait > end:
                break
            self.now += wait
            for job in self.channels.advance(wait):
                self._ended(job)
        self.channels.advance(end - self.now)
        self.now = end

    def _work(self, ns: float) -> None:
        self.outcome.cpu_busy_ns += ns
        self._pass(ns)

    def _ended(self, job: Job) -> None:
        window = job.window
        window.jobs_left -= 1
        if self.plan.streaming:
            for folio in range(job.first, job.first + job.folios):
                window.folio_jobs_left[folio] -= 1
                if not window.folio_jobs_left[folio]:
                    self.folio_ready.append((window, folio))
        elif not window.jobs_left:
            self.window_ready.append(window)

    def _unmap_window(self) -> None:
        folios = min(self.to_unmap, self.plan.window_folios)
        window = Window(folios, self.now)
        self.to_unmap -= folios
        self.open += 1
        self.unmapped += folios
        self.outcome.most_unmapped = max(self.outcome.most_unmapped, self.unmapped)
        self._work(folios * self.cost_ns + self.machine.setup_ns)
        if self.plan.split:
            self._submit_split(window)
        else:
            self._submit_whole(window)
        self.channels.share()

    def _submit_split(self, window: Window) -> None:
        """Spread each folio over all channels, in equal pieces."""
        count = self.plan.channels
        size = self.plan.folio_bytes
        for folio in range(window.folios):
            window.folio_jobs_left[folio] = count
            for channel in range(count):
                piece = size * (channel + 1) // count - size * channel // count
                alone = self.machine.alone_bytes_per_ns(piece)
                self.channels.submit(channel, Job(window, folio, 1, piece, alone))
                window.jobs_left += 1

    def _submit_whole(self, window: Window) -> None:
        """Give each channel an equal run of whole folios, as posted."""
        count = self.plan.channels
        size = self.plan.folio_bytes
        alone = self.machine.alone_bytes_per_ns(size)
        first = 0
        for channel in range(count):
            run = window.folios // count + (channel < window.folios % count)
            # With streaming each folio completes alone, otherwise all at the end.
            step = 1 if self.plan.streaming else max(run, 1)
            for start in range(first, first + run, step):
                job = Job(window, start, step, step * size, alone)
                self.channels.submit(channel, job)
                window.jobs_left += 1
                if self.plan.streaming:
                    window.folio_jobs_left[start] = 1
            first += run

    def _move_folio(self) -> None:
        window, folio = self.folio_ready.popleft()
        self._work(self.move_ns)
        cleared = window.start_ns + (folio + 1) * self.cost_ns
        self._moved(window, 1, Reach(self.now - cleared, 0.0, 1))

    def _move_window(self) -> None:
        window = self.window_ready.popleft()
        first = self.now + self.move_ns
        if not self.outcome.moved_folios:
            self.outcome.first_folio_ns = first - window.start_ns
        self._work(window.folios * self.move_ns)
        cleared = window.start_ns + self.cost_ns
        step = self.move_ns - self.cost_ns
        self._moved(window, window.folios, Reach(first - cleared, step, window.folios))

    def _moved(self, window: Window, folios: int, reach: Reach) -> None:
        if not self.outcome.moved_folios:
            self.outcome.first_folio_ns = (
                self.outcome.first_folio_ns or self.now - window.start_ns
            )
        self.outcome.reach.append(reach)
        self.outcome.moved_folios += folios
        self.unmapped -= folios
        window.moved += folios
        if window.moved == window.folios:
            self.open -= 1
            self._work(self.machine.finish_ns)


def simulate(machine: Machine, plan: Plan) -> Outcome:
    """Run one plan."""
    return Pipeline(machine, plan).run()
