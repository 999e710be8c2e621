"""Train one net by a function of the user's own: a generator of `Progress` that ends with a `JobResult`.

The function runs in a thread and a temporary folder of its own, and what it reports is yielded here.
"""

import os
import random
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from types import ModuleType
from typing import Any

import numpy as np
import torch

from ...archs.children import mark_children
from ...results.runs.status import Status
from .failures import failure
from .job import JobResult, Progress, TrainJob
from .loaders import DeviceLoader
from .train_context import TrainContext, TrainingOverError
from .trainer_file import FUNCTION, TrainerFile


def train_own(job: TrainJob, loader: DeviceLoader) -> Iterator[Progress | JobResult]:
    """Train `job` by its trainer: some `Progress`, then one `JobResult`, whatever the user's code does.

    Errors before it begins, such as of another training's checkpoint, pass through.
    """
    # the function runs in another folder
    job = replace(job, checkpoint=str(Path(job.checkpoint).absolute()), weights=str(Path(job.weights).absolute()))
    context = TrainContext(job, loader)
    Thread(target=_call, args=(job, context), name=FUNCTION, daemon=True).start()
    try:
        while isinstance(event := context.events.get(), Progress):
            yield event
    finally:
        context.closed = True
    if isinstance(event, TrainingOverError):
        yield context.outcome(Status.NAN, error=str(event))
    elif event is not None:
        yield failure(job, event)
    else:
        yield context.result()


def _call(job: TrainJob, context: TrainContext) -> None:
    """Call the user's function; the last event is the error that it raised, or None."""
    assert job.trainer is not None
    process, home, error = os.getpid(), Path.cwd(), None
    mark_children()
    try:
        _seed(job.seed * 1_000_003 + context.step)
        # a relative path that it writes to must not be one of the run's files
        with TemporaryDirectory(prefix="alternas-trainer-", ignore_cleanup_errors=True) as own, chdir(own):
            load_function(job.trainer, home)(context)
    except BaseException as raised:  # noqa: BLE001 - code of the user's can raise anything
        error = raised
    if os.getpid() != process:  # a child that the code has forked, and that walked out here
        os._exit(1)
    context.events.put(error)


def _seed(seed: int) -> None:
    """What random numbers of the user's are drawn from; a function of seed and step, as ours are."""
    torch.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


@cache  # once a worker: a file may load its data when it is run
def load_function(trainer: TrainerFile, home: Path) -> Callable[[TrainContext], Any]:
    """Run the file's text, and return its function. The file's path is from `home` on."""
    module = ModuleType(f"trainer_file_{trainer.name.removesuffix('.py')}")
    module.__file__ = str(home / trainer.path)
    sys.modules[module.__name__] = module  # where pickle and dataclasses look its types up
    exec(compile(trainer.source, trainer.path, "exec", dont_inherit=True), module.__dict__)
    return getattr(module, FUNCTION)
