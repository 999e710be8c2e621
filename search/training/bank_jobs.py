"""Jobs on shared weights: `SupernetJob` trains a bank, `EvaluateJob` evaluates a net on slices of it."""

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ...archs import Genotype
from ...results.ranking.metric import Metric
from .member import ALONE, Member
from .recipe import Recipe

BANK_JOB = -1  # the id of a part of the bank's training, which is of no trial


@dataclass(frozen=True)
class SupernetJob:
    """Train a bank of shared weights for some steps; see `supernet.trainer`."""

    nets: tuple[tuple[Genotype, ...], ...]  # those trained in each step, from `start_step` on
    start_step: int  # at which the training goes on from its state there; 0 begins anew
    total_steps: int  # the full budget, in optimiser steps, which the learning-rate schedule spans
    largest: tuple[Genotype, ...]  # nets that a new bank is made large enough for: all that it is trained for
    validated: tuple[Genotype, ...]  # nets that are measured as the bank trains
    recipe: Recipe
    seed: int  # of the initial weights, the order of the images and their augmentation
    checkpoint: str  # stem of the files that hold the state at a step; see `state_at`
    weights: str  # safetensors file of the bank, written when `stop_step` equals `total_steps`
    # what the bank is trained on and for; a checkpoint of another bank is refused
    facts: dict[str, Any] = field(default_factory=dict)
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed
    member: Member = ALONE  # the worker, among those that have the same job, each with its share of a step's nets
    metric: Metric = field(default_factory=Metric)  # whose score points of the curve have as accuracy

    @property
    def id(self) -> int:
        return BANK_JOB

    @property
    def stop_step(self) -> int:
        """The optimiser step at which to stop and report."""
        return self.start_step + len(self.nets)

    def state_at(self, step: int) -> Path:
        """The file of the training's state at a step."""
        return Path(f"{self.checkpoint}-{step}.pt")


@dataclass(frozen=True)
class EvaluateJob:
    """Evaluate one net on slices of a bank; see `supernet.evaluate`."""

    trial: int
    genotype: Genotype
    bank: str  # the bank's file
    recipe: Recipe  # batch size and precision
    weights: str  # safetensors file for the net's slices
    timeout_s: float = math.inf  # the worker of a job that takes longer is killed
    metric: Metric = field(default_factory=Metric)  # what the net is ranked by, whose score its result has as accuracy

    @property
    def id(self) -> int:
        return self.trial

    @property
    def confusion(self) -> str:
        """The .npz file for the net's confusion of classes, beside its weights."""
        return str(Path(self.weights).with_suffix(".npz"))
