"""`Measuring`: has each net of a search measured before it is trained, where a cost or a limit is measured.

`next` hands out the job, which a worker does (../training/latency_job.py); `take` makes a line of the log of its
numbers and refuses the net if it is over a limit by them. A `Device` (devices.py) keeps them, and knows if it is free.
"""

from collections.abc import Iterator

from ...results.runs.events import Line
from ...results.runs.status import Status
from ..training.job import JobResult, LatencyJob
from .producer import Idle, Producer
from .search_trials import SearchTrials

MAX_OVER = 100  # nets in a row that are measured and over a limit, before no more are proposed


class Measuring(Producer):
    """Measures the nets that wait in the queue of a search, device by device; what runs is among its trials."""

    def __init__(self, search: SearchTrials) -> None:
        self._search, self._devices = search, search.context.devices
        self._over_in_a_row = 0

    def next(self) -> LatencyJob | Idle:
        """The measurement of the first net in the queue whose device is free; the search knows what waits for one."""
        live, minutes = self._search.live, self._search.context.settings.run.budget.trial_minutes
        trial = live.next_queued(lambda trial: not trial.last_result and self._devices.is_free_for(trial.net))
        if trial is None:
            return Idle.OVER
        device = self._devices.pending(trial.net)
        assert device is not None, "is_free_for"
        return device.job(trial.number, trial.net, max(1.0, 60 * minutes))

    def take(self, job: LatencyJob, result: JobResult) -> Iterator[Line]:
        """A device's measurement of a net, then the end of its trial if it is over a limit, or does not run there."""
        search, trial, device = self._search, self._search.live[job.trial], self._devices.at_work(job)
        device.release()
        trial.ran(result)
        if result.status == Status.OK:
            yield device.measured(trial.number, trial.net.key, result.latency)
            over = search.context.limits.broken_measured(trial.net)  # as it is known by now
            if over and trial.kind != "reference":
                self._over_in_a_row += 1
                search.exhausted |= self._over_in_a_row >= MAX_OVER
                yield search.admission.infeasible(trial, over)
                return
            self._over_in_a_row = 0
        else:
            device.fail(result)
            if result.status == Status.INFEASIBLE:
                yield search.admission.infeasible(trial, {device.failure: 1.0}, result.error)
                return
            if result.status != Status.UNREACHABLE:
                yield trial.finish(result.status, result.error)
                return
        search.live.queue.appendleft(trial.number)  # to be measured elsewhere or again, then trained
