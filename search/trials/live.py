"""`LiveTrials`: the trials under way, and the order in which they wait for a worker."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from ...results.runs.events import Event
from ...results.runs.record import Record
from ...results.runs.status import Status
from .trial import Trial


class LiveTrials(dict[int, Trial]):
    """Trials under way, by number.

    States of a trial: proposed -> infeasible | duplicate | waiting; waiting (for its first job, or a further
    seed) -> running; running -> waiting | paused (at a rung) | infeasible (measured over a limit, or a device does not
    run it) | ok | error | nan | oom | timeout | lost (the third time); paused -> waiting (promoted) | pruned (at the
    end).
    """

    def __init__(self) -> None:
        super().__init__()
        self.by_key: dict[str, Trial] = {}  # those that no other one may repeat, by what tells them apart
        self.queue: deque[int] = deque()  # those to run before anything new: resumed ones, further seeds

    def enqueue(self, trial: Trial) -> None:
        """Take up a trial, to wait for a worker."""
        self[trial.number] = trial
        if not trial.is_finetuning:
            self.by_key[trial.key] = trial
        self.queue.append(trial.number)

    def pause(self, event: Event) -> None:
        """Pause a trial, if it is under way still."""
        if trial := self.get(event.trial):
            trial.pause(event)
            self._leave_queue(event.trial)

    def promote(self, number: int) -> None:
        """Let a paused trial wait for a worker."""
        if trial := self.get(number):
            trial.promote()
            self.queue.append(number)

    def end(self, record: Record) -> None:
        """Let go of a trial that has ended."""
        self._leave_queue(record.trial)
        self.pop(record.trial, None)
        if record.status != Status.DUPLICATE:
            self.by_key.pop(record.trial_key, None)

    def _leave_queue(self, number: int) -> None:
        if number in self.queue:
            self.queue.remove(number)

    @property
    def all_paused(self) -> bool:
        """Whether none of them runs or waits for a worker."""
        return all(trial.paused for trial in self.values())

    def next_queued(self, can_start: Callable[[Trial], bool] = lambda trial: True) -> Trial | None:
        """Take the first trial that can start from the queue; None if none can."""
        number = next((number for number in self.queue if can_start(self[number])), None)
        if number is None:
            return None
        self.queue.remove(number)
        return self[number]
