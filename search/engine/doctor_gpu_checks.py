"""Whether a card trains nets rightly: the losses of the CPU, a training that goes on as if unbroken, no wait, memory.

`alternas doctor --gpu` and `pytest -m gpu` run these.
"""

import math
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import get_context
from typing import Any

import numpy as np
import torch

from ...archs import Encoder, Genotype, Head, Stage, Stem
from ...archs.children import safe_path
from ...archs.errors import OperationError
from ..data.dataset import DataSet, Split
from ..training.job import TrainJob
from ..training.loaders import MemoryLoader
from ..training.loop import Trainer
from ..training.member import ALONE, Member
from ..training.recipe import Augment, Recipe

CPU = torch.device("cpu")
SIDE, CLASSES = 32, 10
NETS = {
    "resnet": Genotype(Stem("cifar", 8), (Stage("basic", 1, 8), Stage("basic", 1, 16, 2))),
    "alternet": Genotype(
        Stem("cifar", 8), (Stage("bottleneck", 1, 8), Stage("bottleneck", 2, 8, 2, msa=1, heads=2, head_dim=8))
    ),
    "vit": Genotype(Stem("none"), (), Encoder(32, 2, 2, patch=4), Head("token")),
    "convnext": Genotype(Stem("cifar", 8), (Stage("convnext", 1, 8), Stage("mbconv", 1, 16, 2))),
}
TOLERANCE = {"float32": 1e-3, "bfloat16": 3e-2}  # of a loss, relative to the CPU's in float32
STEPS = 5
RECIPE = Recipe(
    "doctor", 1, 64, "adamw", 3e-3, 0.05, clip_grad=1.0, ema_decay=0.9, label_smoothing=0.1,
    augment=Augment(pad=4, flip=True, ra_num_ops=2, ra_magnitude=5, mixup=0.2),
)  # fmt: skip
WHOLE_BUDGET = 20  # steps that the schedule spans
RESUMED = 1e-4  # relative: sums on a card come in any order


@dataclass(frozen=True)
class Found:
    """What a check found, in a line, and its numbers."""

    text: str
    figures: dict[str, Any] = field(default_factory=dict)


def noise(images: int, side: int = SIDE) -> DataSet:
    """Random pictures in three colours: speed and agreement do not depend on what they show."""
    draw = np.random.default_rng(0)
    train, val = (
        Split(draw.integers(0, 256, (count, 3, side, side), np.uint8), np.arange(count) % CLASSES)
        for count in (images, 64)
    )
    names = tuple(map(str, range(CLASSES)))
    return DataSet("noise", (side, side), names, train, val, None, (127.5,) * 3, (73.9,) * 3, 255.0, "")


@contextmanager
def trainer_of(
    net: Genotype,
    recipe: Recipe,
    device: torch.device,
    data: DataSet | None = None,
    steps: int = WHOLE_BUDGET,
    member: Member = ALONE,
) -> Iterator[Trainer]:
    """A training of a net on noise, about to begin; its files go when it is done with."""
    data = data or noise(4 * recipe.batch_size)
    with tempfile.TemporaryDirectory(prefix="alternas-doctor") as folder:
        files = f"{folder}/checkpoint.pt", f"{folder}/net.safetensors"
        job = TrainJob(0, net, recipe, 0, steps, steps, *files, member=member)
        trainer = Trainer(job, MemoryLoader(data, device))
        trainer.net.train()
        yield trainer


def train(trainer: Trainer, steps: int) -> list[torch.Tensor]:
    """Losses of steps, on the device."""
    return [trainer.train_step(*next(trainer.batches)) for _ in range(steps)]


@contextmanager
def exact() -> Iterator[None]:
    """Products in all of float32, and kernels that give the same each time."""
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("highest")
    try:
        with torch.backends.cudnn.flags(enabled=True, benchmark=False, deterministic=True, allow_tf32=False):
            yield
    finally:
        torch.set_float32_matmul_precision(before)


@contextmanager
def processes_of(target: Callable[..., None], arguments: Sequence[tuple[Any, ...]]) -> Iterator[list[Any]]:
    """Processes that run a function, one with each of these arguments; none of them lives on."""
    started = [get_context("spawn").Process(target=target, args=given, daemon=True) for given in arguments]
    with safe_path():
        for process in started:
            process.start()
    try:
        yield started
    finally:
        for process in started:
            process.kill()
            process.join()


def losses_agree(device: torch.device) -> Found:
    """Check that five steps of four nets have the CPU's losses."""
    worst = dict.fromkeys(TOLERANCE, 0.0)
    for name, net in NETS.items():
        with exact(), trainer_of(net, replace(RECIPE, precision="float32"), CPU) as trainer:
            expected = torch.stack(train(trainer, STEPS))
        for precision, most in TOLERANCE.items():
            with exact(), trainer_of(net, replace(RECIPE, precision=precision), device) as trainer:
                losses = torch.stack(train(trainer, STEPS)).cpu()
            off = ((losses - expected) / expected).abs().max().item()
            if not off <= most:
                rule = f"losses in {precision} must be the CPU's within {most:g}"
                raise OperationError(f"{name}: {rule}, they are {off:.2g} off: {_listed(losses)}, {_listed(expected)}")
            worst[precision] = max(worst[precision], off)
    text = ", ".join(f"{off:.1g} off in {precision}" for precision, off in worst.items())
    return Found(f"of {len(NETS)} nets, at most {text}", worst)


def _listed(losses_S: torch.Tensor) -> str:
    return " ".join(f"{loss:.4f}" for loss in losses_S.tolist())


def resumes(device: torch.device) -> Found:
    """Check that a training that goes on from its checkpoint has the losses of an unbroken one."""
    recipe, far = replace(RECIPE, precision="float32"), 2 * STEPS
    with exact(), trainer_of(NETS["alternet"], recipe, device) as trainer:
        train(trainer, STEPS)
        trainer.save()
        unbroken = torch.stack(train(trainer, far - STEPS)).cpu()
        later = Trainer(trainer.job, trainer.loader)
        later.net.train()
        resumed = torch.stack(train(later, far - STEPS)).cpu()
    off = ((resumed - unbroken) / unbroken).abs().max().item()
    if not off <= RESUMED:
        raise OperationError(f"losses behind a checkpoint differ by {off:.2g}: {_listed(resumed)}, {_listed(unbroken)}")
    return Found(f"at step {STEPS} of {far}, {off:.1g} off", {"off": off})


def never_waits(device: torch.device) -> Found:
    """Check that no step waits for the card, with all that a recipe may have."""
    dropped = replace(RECIPE, dropout=0.1, drop_path=0.1, grad_accum_steps=2)
    recipes = [RECIPE, dropped, replace(dropped, optimizer="lamb"), replace(dropped, sam_rho=0.05)]
    for recipe in recipes:
        with trainer_of(NETS["alternet"], recipe, device) as trainer:
            train(trainer, STEPS)  # the first ones make the optimiser's state, and the graph
            torch.cuda.synchronize(device)
            torch.cuda.set_sync_debug_mode("error")
            try:
                train(trainer, STEPS)
            finally:
                torch.cuda.set_sync_debug_mode("default")
    return Found(f"{STEPS} steps of {len(recipes)} recipes")


def recovers_from_full_memory(device: torch.device) -> Found:
    """Check that a batch that does not fit goes through in parts, and that a later training has all memory again."""
    net, recipe = NETS["resnet"], replace(RECIPE, batch_size=1024, precision="float32")
    data = noise(recipe.batch_size)
    total = torch.cuda.get_device_properties(device).total_memory
    with trainer_of(net, recipe, device, data) as trainer:
        torch.cuda.reset_peak_memory_stats(device)
        train(trainer, 1)
        needed = torch.cuda.max_memory_reserved(device)
    del trainer
    torch.cuda.empty_cache()
    torch.cuda.set_per_process_memory_fraction(0.6 * needed / total, device)
    try:
        with trainer_of(net, recipe, device, data) as trainer:
            loss, passes = train(trainer, 1)[0].item(), trainer.gradients.passes
        del trainer
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0, device)
        torch.cuda.empty_cache()
    if passes < 2 or not math.isfinite(loss):
        raise OperationError(f"with 60 % of the memory it needs a batch goes through in {passes} passes, loss {loss:g}")
    with trainer_of(net, recipe, device, data) as trainer:
        train(trainer, 1)
        again = trainer.gradients.passes
    if again != 1:
        raise OperationError(f"behind an out of memory the same batch needs {again} passes")
    return Found(
        f"{needed / 2**20:.0f} MiB needed, with 60 % of it {passes} passes, then one again", {"passes": passes}
    )


CHECKS: dict[str, Callable[[torch.device], Found]] = {
    "losses": losses_agree,
    "resume": resumes,
    "waits": never_waits,
    "memory": recovers_from_full_memory,
}
