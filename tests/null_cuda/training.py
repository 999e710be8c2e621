"""Trainings on the null device: nets, a job, and what steps of a training ask of the device."""

import dataclasses
import tempfile
from typing import Any

import torch

from alternas.archs import Genotype, Stage, Stem, Style, zoo
from alternas.search.engine.doctor_gpu_checks import noise
from alternas.search.training import recipes
from alternas.search.training.job import TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer
from alternas.search.training.recipe import Recipe

from .kernels import counted

CUDA = torch.device("cuda")
WARM = 6  # steps until nothing is new: optimisers have made their state, a graph is captured
STEPS = 3
STEPS_OF_JOB = 10**4
SMALL = Genotype(
    Stem("cifar", 8), (Stage("basic", 2, 8, msa=1, heads=2, head_dim=4), Stage("basic", 1, 16, 2)), style=Style("pre")
)
NETS = {
    "resnet": lambda: Genotype(Stem("cifar", 16), tuple(Stage("basic", 2, 16 * 2**i, 2 if i else 1) for i in range(4))),
    "alternet50": lambda: zoo.get("alternet50", 32),
    "vit": lambda: zoo.get("vit_tiny_patch2", 32),
    "small": lambda: SMALL,
}


def recipe_of(**changes: Any) -> Recipe:
    return dataclasses.replace(recipes.fast(), batch_size=256, **changes)


def job(net: Genotype, recipe: Recipe, steps: int = STEPS_OF_JOB, **changes: Any) -> TrainJob:
    """A training in a folder of its own."""
    folder = tempfile.mkdtemp()
    return TrainJob(0, net, recipe, 0, steps, steps, f"{folder}/c.pt", f"{folder}/w.safetensors", **changes)


def counts_of_step(name: str, images: int = 256, eager: bool = False, **changes: Any) -> dict[str, float]:
    """What a step asks of the device once all is in place, in the mean of a few: launches, waits, copies, memory."""
    recipe = dataclasses.replace(recipe_of(**changes), batch_size=images)
    trainer = Trainer(job(NETS[name](), recipe), MemoryLoader(noise(4 * images), CUDA))
    trainer.net.train()
    trainer.graph.wanted &= not eager

    def steps(count: int) -> None:
        for _ in range(count):
            trainer.train_step(*next(trainer.batches))

    steps(WARM)
    return {what: number / STEPS for what, number in counted(lambda: steps(STEPS)).items()}
