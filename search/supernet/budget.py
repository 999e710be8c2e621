"""How the compute of a supernet search is divided between bank, evaluation and finetuning. No torch.

Compute is counted in FLOPs, training 6 x MACs x images and evaluation 2 x MACs x images, of everything that a search
does but the baselines. One training is a full one of the space's mean net.
"""

from __future__ import annotations

from dataclasses import dataclass

from ...archs.cost import FORWARD_FACTOR, training_flops
from ..training.job import STATISTICS_IMAGES
from ..training.recipe import Recipe
from .draws import NetSampler

NETS_A_STEP = 2  # that share a step's batch: more steps of fewer images train a bank better (docs/log.md)
MIN_BATCH = 2 * NETS_A_STEP  # BatchNorm cannot train on one image
EVALUATION_SHARE = 0.1
MAX_WATCHES, WATCH_SHARE = 4, 0.05  # times that some fixed nets are evaluated as a bank trains; of the compute, at most
EVALUATION_IMAGES = 1000  # validation images that a net is evaluated on
DRAWS = 256  # steps that tell what a step costs
TRAININGS_A_KIND = 1.75  # of a bank: with 1.85 slices rank the nets of `bench`, with 0.5 most of `all` are at chance


@dataclass(frozen=True)
class SupernetBudget:
    """The compute of a supernet search in FLOPs, and the length of its bank's training."""

    training: float  # of one full training of the space's mean net
    total: float  # of all of it
    bank: float  # of training the bank, at most
    evaluation: float  # of evaluating nets
    finetuning: float  # of the front
    steps: int  # of the bank's training
    watches: int  # times that some fixed nets are evaluated meanwhile


def divide(trainings: float, share: float, sampler: NetSampler, recipe: Recipe, steps: int) -> SupernetBudget:
    """The budget of a search at the compute of so many full trainings of `steps` steps, `share` for finetuning."""
    images = steps * recipe.batch_size
    training = training_flops(sampler.mean_macs, steps, recipe.batch_size)
    evaluation, finetuning = EVALUATION_SHARE * trainings * training, share * trainings * training
    watch = sum(evaluation_flops(sampler.macs(net), images, EVALUATION_IMAGES) for net in sampler.fixed())
    watches = min(MAX_WATCHES, int(WATCH_SHARE * trainings * training / watch))
    bank = trainings * training - evaluation - finetuning - watches * watch
    macs = [sampler.macs(net) for step in range(DRAWS) for net in sampler.nets(step, NETS_A_STEP)]
    a_step = training_flops(sum(macs) / len(macs), 1, recipe.batch_size)
    bank_steps = max(1, int(bank / a_step))
    return SupernetBudget(training, trainings * training, bank, evaluation, finetuning, bank_steps, watches)


def trainings_needed(trainings: float, budget: SupernetBudget, kinds: int) -> float:
    """Full trainings that a search takes whose bank has enough of them for each kind of block."""
    return trainings * kinds * TRAININGS_A_KIND * budget.training / budget.bank


def evaluation_flops(macs: float, train_images: int, val_images: int) -> float:
    """FLOPs of evaluating a net from the bank once."""
    images = min(STATISTICS_IMAGES, train_images) + min(EVALUATION_IMAGES, val_images)
    return FORWARD_FACTOR * macs * images
