"""What a second process a trial is worth on a CPU: the same steps of a training by one process and by two, in turns.

    python benchmarks/devices.py [--turns 5]

Images are noise of 32x32 pixels, batches of 64, each process has one thread; 12 steps and a validation on 64 images
are timed. Wall: seconds alone over those of two. CPU: processor time alone over that of the busier of two, which is
what wall comes to where each process has a core of its own and waits for nobody; other load on the machine lowers
wall, and CPU less. Writes benchmarks/results/devices.json. About 4 minutes
on two quiet cores.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import keep, options, sized, summary

from alternas.archs import Encoder, Genotype, Head, Stage, Stem
from alternas.search.data.dataset import DataSet, Split
from alternas.search.training import recipes
from alternas.search.training.group import open_group
from alternas.search.training.job import TrainJob
from alternas.search.training.loaders import open_loader
from alternas.search.training.member import Member
from alternas.search.training.trainer import Trainer

STEPS, BATCH, SIDE = sized(13, 3), sized(64, 8), sized(32, 8)
WIDTHS = sized((8, 16, 32), (4,))
GOAL = 1.7


def data() -> DataSet:
    """Noise of ten classes."""
    random = np.random.default_rng(0)

    def split(images: int) -> Split:
        return Split(random.integers(0, 256, (images, 3, SIDE, SIDE), np.uint8), np.arange(images) % 10)

    classes = tuple("abcdefghij")
    return DataSet(
        "noise", (SIDE, SIDE), classes, split(8 * BATCH), split(BATCH), None, (127.0,) * 3, (74.0,) * 3, 255.0, ""
    )


def nets() -> dict[str, Genotype]:
    """By name: ResNets, whose batch norms exchange statistics, and a ViT, which has none."""
    found = {}
    for width in WIDTHS:
        stages = tuple(Stage("basic", 2, width * 2**i, 2 if i else 1) for i in range(3))
        found[f"ResNet of width {width}"] = Genotype(Stem("cifar", width), stages)
    encoder = Encoder(sized(128, 16), sized(4, 1), 4, patch=4)
    return found | {"ViT": Genotype(Stem("none"), (), encoder, Head("token"))}


class Timed:
    """Trains a net for some steps, alone or with another process, and says how long that took."""

    def __init__(self) -> None:
        torch.set_num_threads(1)
        self._loader = open_loader(data(), torch.device("cpu"), 0)

    def __call__(self, job: TrainJob) -> tuple[float, float]:
        """Seconds by the clock, and of processor time."""
        trainer = Trainer(job, self._loader)
        with open_group(job.member, self._loader.device, 0) as group:
            trainer.join(group)
            trainer.train_to(1)  # all that is made once
            before, began = trainer.seconds, time.process_time()
            trainer.train_to(job.stop_step)
            return trainer.seconds - before, time.process_time() - began


def second(jobs: Any) -> None:
    """The other process: trains what it is given until that is nothing."""
    timed = Timed()
    while job := jobs.recv():
        jobs.send(timed(job))


def turn(net: Genotype, first: Timed, other: Any, folder: Path) -> dict[str, float]:
    """The ratios of one training alone and one of two processes."""
    files = str(folder / "none.pt"), str(folder / "none.safetensors")
    job = TrainJob(0, net, replace(recipes.get("smoke"), batch_size=BATCH), 0, STEPS, 10 * STEPS, *files)
    alone, alone_cpu = first(job)
    (meet := folder / "meeting").touch()
    other.send(replace(job, member=Member(1, 2, str(meet))))
    together, cpu = first(replace(job, member=Member(0, 2, str(meet))))
    _, other_cpu = other.recv()
    meet.unlink(missing_ok=True)
    return {"alone_s": alone, "two_s": together, "wall": alone / together, "cpu": alone_cpu / max(cpu, other_cpu)}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--turns", type=int, default=sized(5, 1))
    turns = parser.parse_args().turns
    here, there = get_context("spawn").Pipe()
    process = get_context("spawn").Process(target=second, args=(there,))
    process.start()
    first, figures = Timed(), dict[str, Any]()
    with tempfile.TemporaryDirectory() as folder:
        for name, net in nets().items():
            rows = [turn(net, first, here, Path(folder)) for _ in range(turns)]
            figures[name] = {key: summary([row[key] for row in rows]) for key in rows[0]}
            print(name, {key: round(statistics.median(row[key] for row in rows), 3) for key in rows[0]}, flush=True)
    here.send(None)
    process.join()
    keep("devices", {"goal": GOAL, "load": os.getloadavg()[0], "steps": STEPS, "batch": BATCH, "nets": figures})


if __name__ == "__main__":
    main()
