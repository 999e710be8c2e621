"""Checks a training of the user's own before a search: two steps on one small net, in a process of their own.

That process may exit, hang, fork or crash without harm to the search; it and all that it has started are ended. It is
sent its work by this module on its standard input, and answers in a file.
"""

import json
import os
import pickle
import subprocess
import sys
import tempfile
import traceback
from dataclasses import replace
from pathlib import Path
from threading import Timer
from threading import enumerate as all_threads

from ...archs import Genotype
from ...archs.children import ended_after
from ...archs.errors import InputError
from ...archs.user_code import SECONDS, users_line
from ...results.ranking.metric import Metric
from ...results.runs.status import Status
from ..data.dataset import DataSet
from .job import TrainJob
from .recipe import Recipe
from .trainer_file import FUNCTION, TrainerFile

STEPS = 2  # the second one goes on from the first one's checkpoint, as after a rung
START_SECONDS = 120.0  # for torch to be imported on a busy machine


def check_trainer(
    trainer: TrainerFile, net: Genotype, recipe: Recipe, steps: int, metric: Metric, data: DataSet, gpu: bool
) -> None:
    """Train `net` for two steps.

    `steps`: the full budget. `gpu`: whether to train on one, where there is one. Raises InputError if that does not go
    well, with the line of the user's code.
    """
    with tempfile.TemporaryDirectory() as folder:
        here = Path(folder)
        files = str(here / "checkpoint.pt"), str(here / "net.safetensors")
        job = TrainJob(0, net, recipe, 0, 1, steps, *files, trainer=trainer, metric=metric)
        asked = pickle.dumps((job, data, gpu, str(here / "answer.json"), SECONDS))
        command = [sys.executable, "-P", "-m", __name__]
        with open(here / "printed", "wb") as printed, ended_after() as environment:
            streams = {"stdout": printed, "stderr": printed, "env": environment, "start_new_session": True}
            try:
                done = subprocess.run(command, input=asked, timeout=START_SECONDS + SECONDS, check=False, **streams)
            except subprocess.TimeoutExpired:
                raise InputError(f"trainer {trainer.path}: takes longer than {SECONDS:g} s for a step") from None
        answer = here / "answer.json"
        error = f"its process ended with exit code {done.returncode}"
        error = json.loads(answer.read_text(encoding="utf-8")) if answer.exists() else error
    if error:
        raise InputError(f"trainer {trainer.path}: {error}")


def _train(job: TrainJob, data: DataSet, gpu: bool) -> str:
    """What goes wrong; "" if nothing does."""
    import torch

    from .failures import failure
    from .job import JobResult
    from .loaders import open_loader
    from .own_training import train_own

    device = torch.device("cuda" if gpu and torch.cuda.is_available() else "cpu")
    loader = open_loader(data, device, 0)
    for stop in range(1, min(STEPS, job.total_steps) + 1):
        try:
            result = [*train_own(replace(job, stop_step=stop), loader)][-1]
        except Exception as error:  # noqa: BLE001 - as a worker does
            result = failure(job, error)
        assert isinstance(result, JobResult)
        if result.status != Status.OK:
            return f"step {stop}: {result.error}"
        if result.how.get("checkpoint"):
            return "save: must be given tensors, numbers, texts, and lists, tuples and dicts of them alone"
    return ""


def main() -> None:
    """Do what standard input asks for."""
    job, data, gpu, answer, seconds = pickle.load(sys.stdin.buffer)

    def answer_with(error: str) -> None:
        Path(answer).write_text(json.dumps(error), encoding="utf-8")

    def stop() -> None:
        frames = sys._current_frames()
        places = [
            frames[thread.ident] for thread in all_threads() if thread.name == FUNCTION and thread.ident in frames
        ]
        stack = [*traceback.walk_stack(places[-1])] if places else []
        answer_with(f"{users_line(stack[::-1])}a step takes longer than {seconds:g} s")
        os._exit(1)

    timer = Timer(seconds, stop)
    timer.daemon = True
    timer.start()
    answer_with(_train(job, data, gpu))
    os._exit(0)  # whatever threads the code has left


if __name__ == "__main__":
    main()
