"""The training loop beside a bare PyTorch loop and timm's, in turns in one process; and its accuracy on `cue`.

    python benchmarks/training.py cpu [--repeats 10]     images per second, AlterNet-18 at quarter width, 32 px
    python benchmarks/training.py cue [--seeds 3]        accuracy of a quarter-width ResNet-18, ours and timm's
    python benchmarks/training.py gpu [--repeats 10]     AlterNet-50 in bfloat16; a ResNet of airbench's size

The pictures of `cpu` and `gpu` are noise of CIFAR's form: speed does not depend on what they show. Writes
benchmarks/results/training_PART.json.
"""

from __future__ import annotations

import dataclasses
import itertools
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import keep, options, shown, sized, summary
from timm.models.resnet import BasicBlock, ResNet
from timm_loop import TimmLoop, timm_loader
from torch import Tensor, nn

from alternas.archs import Genotype, Stage, Stem, Style, build, static_cost, zoo
from alternas.archs.timm import timm_key
from alternas.search.data.dataset import DataConfig, DataSet, Split
from alternas.search.data.load import load
from alternas.search.engine.doctor_gpu_speed import matmul_rate
from alternas.search.training import recipes
from alternas.search.training.augment import Draws, moved, moves_of
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import Trainer, train
from alternas.search.training.recipe import Augment, Recipe

STEPS = sized(10, 1)  # of one turn
WIDTH = sized(16, 4)  # of the ResNet-18 on cue
Turn = Callable[[], None]


def noise(images: int, classes: int) -> DataSet:
    """Pictures of CIFAR's form."""
    random = np.random.default_rng(0)
    parts = [Split(random.integers(0, 256, (n, 3, 32, 32), np.uint8), np.arange(n) % classes) for n in (images, 256)]
    names = tuple(str(k) for k in range(classes))
    return DataSet("noise", (32, 32), names, parts[0], parts[1], None, (127.5,) * 3, (73.9,) * 3, 255.0, "")


def ours(data: DataSet, net: Genotype, recipe: Recipe, device: torch.device) -> Turn:
    """A turn of our loop."""
    folder = tempfile.mkdtemp()
    steps = 10**6
    job = TrainJob(0, net, recipe, 0, steps, steps, f"{folder}/c.pt", f"{folder}/w.safetensors")
    trainer = Trainer(job, MemoryLoader(data, device))
    if recipe.compile:
        trainer.warm_up()
    trainer.net.train()

    def turn() -> None:
        for _ in range(STEPS):
            trainer.train_step(*next(trainer.batches))

    return turn


def bare(data: DataSet, model: nn.Module, recipe: Recipe, device: torch.device, made: bool = False) -> Turn:
    """A turn of the loop that one writes by hand: no averaging, no clipping, no schedule."""
    layout = torch.channels_last if device.type == "cuda" else torch.contiguous_format
    model = model.to(device, memory_format=layout).train()  # type: ignore[call-overload]
    forward = torch.compile(model) if made else model
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3, weight_decay=0.05, fused=True)
    x = (torch.tensor(data.train.images, device=device).float() - 127.5) / 73.9
    y, generator = torch.tensor(data.train.y_N, device=device), torch.Generator().manual_seed(0)

    def step(chosen: Tensor) -> None:
        draws = Draws(generator, len(chosen))
        pad = recipe.augment.pad
        places = moves_of((x.shape[2], x.shape[3]), pad, True, draws)
        images = moved(x[chosen], pad, *(at.to(device, non_blocking=True) for at in places))
        with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
            logits = forward(images.contiguous(memory_format=layout))
        F.cross_entropy(logits.float(), y[chosen], label_smoothing=recipe.label_smoothing).backward()
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    def turn() -> None:
        order = torch.randperm(len(y), generator=generator).to(device)
        for i in range(STEPS):
            step(order[i * recipe.batch_size : (i + 1) * recipe.batch_size])

    return turn


def timms(data: DataSet, model: nn.Module, recipe: Recipe, workers: int) -> Turn:
    """A turn of timm's loop, fed by its loader."""
    loop, loader = TimmLoop(model, recipe, 10**6), timm_loader(data, recipe, workers)

    def forever() -> Iterator[tuple[Tensor, Tensor]]:
        while True:
            yield from loader

    batches = forever()

    def turn() -> None:
        for _ in range(STEPS):
            loop(*next(batches))

    return turn


def compare(turns: dict[str, Turn], images: int, repeats: int, ours: int = 1) -> dict[str, Any]:
    """Images per second of each, and the ratios of the first `ours` to the others, of neighbouring turns."""
    cuda = torch.cuda.is_available()
    seconds: dict[str, list[float]] = {name: [] for name in turns}
    for repeat in range(repeats + 1):
        for name in list(turns) if repeat % 2 else list(turns)[::-1]:
            torch.cuda.synchronize() if cuda else None
            start = time.perf_counter()
            turns[name]()
            torch.cuda.synchronize() if cuda else None
            seconds[name].append(time.perf_counter() - start)
    names = list(turns)
    found: dict[str, Any] = {
        f"images/s {name}": summary([images / s for s in times[1:]]) for name, times in seconds.items()
    }
    for first, other in itertools.product(names[:ours], names[ours:]):
        ratios = [b / a for a, b in zip(seconds[first][1:], seconds[other][1:], strict=True)]
        fastest = min(seconds[other][1:]) / min(seconds[first][1:])
        found[f"{first} / {other}"] = summary(ratios) | {"of fastest turns": fastest}
    return found


def small_alternet() -> Genotype:
    """AlterNet-18 at quarter width, and a quarter of its heads."""
    depths, msa, heads = sized(((2, 2, 2, 2), (0, 1, 1, 1), (1, 2, 3, 6)), ((2,), (1,), (1,)))
    return zoo.alternet("basic", depths, msa, heads, 4, "cifar", width=16)


def on_cpu(repeats: int) -> dict[str, Any]:
    data, net, cpu = noise(sized(6400, 64), 100), small_alternet(), torch.device("cpu")
    recipe = dataclasses.replace(recipes.fast(), batch_size=sized(128, 16), augment=Augment(pad=2, flip=True))
    simple = dataclasses.replace(recipe, ema_decay=0.0, clip_grad=0.0)
    turns = {"ours": ours(data, net, simple, cpu), "bare": bare(data, build(net, 100, 32), recipe, cpu)}
    found = compare(turns, STEPS * recipe.batch_size, repeats)
    full = {
        "ours with EMA and clipping": ours(data, net, recipe, cpu),
        "the same compiled": ours(data, net, dataclasses.replace(recipe, compile=True), cpu),
        "timm, 1 worker": timms(data, build(net, 100, 32), recipe, workers=1),
        "timm, its default of 4 workers": timms(data, build(net, 100, 32), recipe, workers=4),
    }
    return {
        "net": "alternet18 at width 16, 32 px, batch 128",
        **found,
        **compare(full, STEPS * recipe.batch_size, repeats, ours=2),
    }


def on_cue(seeds: int) -> dict[str, Any]:
    """Validation accuracy of one net under one recipe, in our loop and in timm's."""
    data, recipe = shown(load(DataConfig("cue"))), recipes.cue()
    recipe = recipe.with_epochs(sized(recipe.epochs, 0.05))
    stages = tuple(Stage("basic", 2, WIDTH * 2**i, 2 if i else 1) for i in range(4))
    net = Genotype(Stem("cifar", WIDTH), stages, style=Style("post"))
    bench = MemoryLoader(data, torch.device("cpu"))
    scores: dict[str, list[float]] = {"ours": [], "timm": [], "timm's loop from our initial weights": []}
    for seed in range(seeds):
        with tempfile.TemporaryDirectory() as folder:
            steps = recipe.steps(len(data.train))
            job = TrainJob(0, net, recipe, seed, steps, steps, f"{folder}/c.pt", f"{folder}/w.safetensors")
            *_, outcome = train(job, bench)
            assert isinstance(outcome, JobResult)
            scores["ours"].append(outcome.accuracy or 0.0)
        torch.manual_seed(seed)
        scores["timm"].append(_timm_on_cue(_timm_net(), recipe, seed, bench))
        torch.manual_seed(seed)
        initial = {timm_key(name, net): tensor for name, tensor in build(net, 10, 16, 1).state_dict().items()}
        model = _timm_net()
        model.load_state_dict(initial)
        scores["timm's loop from our initial weights"].append(_timm_on_cue(model, recipe, seed, bench))
        print(f"seed {seed}:", {name: values[-1] for name, values in scores.items()}, flush=True)
    found = {name: {"mean": statistics.mean(v), "sd": statistics.stdev(v), "runs": v} for name, v in scores.items()}
    return {"net": f"post-activation ResNet-18 at width {WIDTH}, cifar stem, on cue", **found}


def _timm_net() -> nn.Module:
    basic: Any = BasicBlock
    model: Any = ResNet(basic, (2, 2, 2, 2), 10, 1, channels=tuple(WIDTH * 2**i for i in range(4)))
    # timm's stem has 64 channels: a narrower one for small images, and the first stage behind it.
    model.conv1, model.bn1 = nn.Conv2d(1, WIDTH, 3, padding=1, bias=False), nn.BatchNorm2d(WIDTH)
    model.maxpool = nn.Identity()
    model.layer1 = nn.Sequential(BasicBlock(WIDTH, WIDTH), BasicBlock(WIDTH, WIDTH))
    torch.nn.init.kaiming_normal_(model.conv1.weight, mode="fan_out", nonlinearity="relu")
    return model


def _timm_on_cue(model: nn.Module, recipe: Recipe, seed: int, bench: MemoryLoader) -> float:
    torch.manual_seed(seed)
    data = bench.data
    steps = recipe.steps(len(data.train))
    loop = TimmLoop(model, recipe, steps)
    for x_BCHW, y_B in itertools.islice(timm_loader(data, recipe, workers=1), steps):
        loop(x_BCHW, y_B)
    with torch.no_grad():
        right = sum((loop.ema(x).argmax(1) == y).sum().item() for x, y in bench.images("val", 1000))
    return right / len(data.val)


def on_gpu(repeats: int) -> dict[str, Any]:
    """AlterNet-50 and a ResNet of airbench's size at 32 px, bfloat16, channels_last, compiled."""
    cuda, data = torch.device("cuda"), noise(50_000, 100)
    nets = {"alternet50": (zoo.get("alternet50", 32), 512), "resnet of airbench's size": (_airbench(), 1024)}
    rate = matmul_rate(cuda, "bfloat16", side=8192, seconds=1.0)
    found: dict[str, Any] = {"device": torch.cuda.get_device_name(), "measured bfloat16 matrix rate, FLOP/s": rate}
    for name, (net, batch) in nets.items():
        recipe = dataclasses.replace(recipes.fast(), batch_size=batch, compile=True, ema_decay=0.0, clip_grad=0.0)
        eager = dataclasses.replace(recipe, compile=False)
        turns = {
            "ours, compiled": ours(data, net, recipe, cuda),
            "bare, compiled": bare(data, build(net, 100, 32), recipe, cuda, made=True),
            "ours, eager": ours(data, net, eager, cuda),
        }
        compared = compare(turns, STEPS * batch, repeats)
        flops = 6 * static_cost(net, 100, 32).macs * compared["images/s ours, compiled"]["median"]
        found[name] = compared | {"share of the matrix rate": flops / rate}
    return found


def _airbench() -> Genotype:
    """Three stages of 64, 256, 256, as many MACs as airbench94's net within a third."""
    return Genotype(Stem("cifar", 64), tuple(Stage("basic", 1, w, 2) for w in (64, 256, 256)), style=Style("post"))


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("part", choices=("cpu", "cue", "gpu"))
    parser.add_argument("--repeats", type=int, default=sized(10, 1))
    parser.add_argument("--seeds", type=int, default=sized(3, 2))
    given = parser.parse_args()
    torch.manual_seed(0)
    found = on_cue(given.seeds) if given.part == "cue" else (on_cpu if given.part == "cpu" else on_gpu)(given.repeats)
    keep(f"training_{given.part}", found)


if __name__ == "__main__":
    main()
