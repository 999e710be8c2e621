"""Does a `LatencyJob`: on this machine, or by the user's command on a device. Knows whose fault a failure is."""

from __future__ import annotations

import time
from dataclasses import replace

from torch import nn

from ...archs.timm_net import Net, side_seen
from ...archs.timm_network import build_net
from ...results.latency.device_command import DeviceCommand
from ...results.latency.measurements import SHORT
from ...results.latency.on_device import DeviceError, measure_on
from ...results.latency.on_this_machine import measure
from ...results.runs.status import Status
from .job import JobResult, LatencyJob


def measure_job(job: LatencyJob) -> JobResult:
    """The result of a job, whose status is "unreachable" where the device is at fault and not the net."""
    setting, began = job.setting, time.monotonic()
    if not isinstance(setting, DeviceCommand):
        latency = measure(_network(job, job.genotype), _image(job, job.genotype), setting, effort=SHORT)
        latency = replace(latency, seconds=round(time.monotonic() - began, 3)).to_dict()
        del latency["busy"]  # the machine's load: its average over a minute still holds the training before
        return JobResult(job.id, Status.OK, latency=latency)
    try:
        network = _network(job, job.genotype)
        latency = measure_on(setting, network, _image(job, job.genotype), job.needed, job.command_timeout_s, SHORT)
    except DeviceError as error:
        if error.status == Status.UNREACHABLE or not job.probe:
            return JobResult(job.id, error.status, error=str(error))
        try:
            measure_on(
                setting, _network(job, job.probe), _image(job, job.probe), job.needed, job.command_timeout_s, SHORT
            )
        except DeviceError:
            return JobResult(job.id, Status.UNREACHABLE, error=f"{error}; so does a net that it measured before")
        return JobResult(job.id, error.status, error=str(error))
    return JobResult(job.id, Status.OK, latency=latency.to_dict())


def _network(job: LatencyJob, net: Net) -> nn.Module:
    channels, height, width = job.image
    return build_net(net, job.classes, (height, width), channels)


def _image(job: LatencyJob, net: Net) -> tuple[int, int, int]:
    """Channels, height and width of the images that a net sees."""
    return (job.image[0], *side_seen(net, job.image[1:]))
