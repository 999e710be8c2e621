"""`CutMeasuring`: has those cuts measured that may be on the front, where a cost or a limit is measured."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from ...archs.timm_net import net_from_dict
from ...results.runs.events import Line
from ...results.runs.record import Record
from ...results.runs.status import Status
from ..training.job import JobResult, LatencyJob
from ..trials.producer import Idle, Producer
from .probing import Probing

log = logging.getLogger("alternas")


class CutMeasuring(Producer):
    """Measures the cuts that `Probing.unmeasured` names, on one device after the other."""

    def __init__(self, probing: Probing) -> None:
        self._probing, self._context = probing, probing.context
        self.running: dict[int, Record] = {}  # the cuts that are measured, by the number of their job

    def next(self) -> LatencyJob | Idle:
        """The measurement of the next cut whose device is free."""
        waiting = self._probing.unmeasured()
        devices, minutes = self._context.devices, self._context.spec.run.budget.trial_minutes
        for record in waiting:
            net = net_from_dict(record.genotype)
            if record.trial not in self.running and devices.is_free_for(net):
                device = devices.pending(net)
                assert device is not None, "is_free_for"
                self.running[record.trial] = record
                return device.job(record.trial, net, max(1.0, 60 * minutes))
        return Idle.WAIT if waiting else Idle.OVER

    def take(self, job: LatencyJob, result: JobResult) -> Iterator[Line]:
        """The event of the measurement; a cut that does not run on the device is no longer a candidate."""
        record, device = self.running.pop(job.trial), self._context.devices.at_work(job)
        device.release()
        if result.status == Status.OK:
            yield device.measured(record.trial, record.key, result.latency)
            return
        device.fail(result)
        if result.status != Status.UNREACHABLE:
            log.warning("trial %d is left out of the front, not measured: %s", record.trial, result.error)
            self._probing.leave_out(record)
