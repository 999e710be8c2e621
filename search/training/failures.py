"""How a job ends that raises: every error of a training is a typed result, with its type and place."""

import traceback

from ...archs.files import disk_error
from ...archs.user_code import blamed
from ...results.latency.measurement import DeviceError
from ...results.runs.status import Status
from .job import Job, JobResult, TrainJob
from .job_files import FilesError


def failure(job: Job, error: BaseException) -> JobResult:
    """The result of a job that raised: "full", "lost", "oom" or "error"; of the user's code with its file and line."""
    from .optim import out_of_memory

    if disk := disk_error(error):
        return JobResult(job.id, Status.FULL, error=f"a worker {disk}")
    if isinstance(error, DeviceError):
        return JobResult(job.id, error.status, error=str(error))
    if isinstance(error, FilesError):
        return JobResult(job.id, Status.LOST, error=str(error))
    if isinstance(job, TrainJob) and job.trainer:
        line = blamed(error)[:300]
    else:
        frames = traceback.extract_tb(error.__traceback__)
        place = f" ({frames[-1].filename.rsplit('/', 1)[-1]}:{frames[-1].lineno})" if frames else ""
        line = " ".join(f"{type(error).__name__}: {error}".split())[:300] + place
    return JobResult(job.id, Status.OOM if out_of_memory(error) else Status.ERROR, error=line)
