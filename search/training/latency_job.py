"""Does a `LatencyJob` in a worker, by `measure_on` (results/latency/on_device.py). Knows whose fault a failure is."""

from ...archs.timm_net import Net, side_seen
from ...archs.timm_network import build_net
from ...results.latency.measurement import DeviceError, Latency
from ...results.latency.on_device import measure_on
from ...results.latency.setting import SHORT
from ...results.runs.status import Status
from .job import JobResult, LatencyJob


def measure_job(job: LatencyJob) -> JobResult:
    """The result of a job; DeviceError, with status "unreachable" where the device is at fault and not the net."""
    try:
        return JobResult(job.id, Status.OK, latency=_measured(job, job.genotype).to_dict())
    except DeviceError as error:
        if error.status == Status.UNREACHABLE or not job.probe:
            raise
        try:
            _measured(job, job.probe)
        except DeviceError:
            both = f"{error}; so does a net that it measured before"
            raise DeviceError(Status.UNREACHABLE, both) from None
        raise


def _measured(job: LatencyJob, net: Net) -> Latency:
    """What the job's device measures of a net, on images of the side that the net sees."""
    channels, *size = job.image
    network = build_net(net, job.classes, (size[0], size[1]), channels)
    shape = (channels, *side_seen(net, job.image[1:]))
    return measure_on(job.setting, network, shape, job.needed, job.command_timeout_s, SHORT)
