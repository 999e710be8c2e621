"""Few-shot accuracy of trained weights on any data: K-shot linear probes and K-way N-shot episodes, in closed form."""

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group, RenderableType

from ...archs import InputError, Network, build
from ...archs.errors import MAX_SEEDS, check_count
from ...results.analysis.linear_probe import Labelled, shot_accuracy
from ...results.analysis_tools.findings import Finding, findings_table
from ...results.ranking.stats import SHARE, mean_ci
from ...results.render.experiment import MISSING, PlotSpec
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.weights_spec import WeightsSpec
from ..data.dataset import DataConfig
from ..data.load import load_classes
from ..training import recipes
from ..training.episodes import BATCH, episode_table
from ..training.evaluation import estimate_norms
from ..training.inherit import inherit, is_refitted
from ..training.job import QUERIES
from ..training.loaders import DeviceLoader, open_loader
from ..training.refit import features

SEEN = "the net was trained on these very images and classes: nothing here says how it learns new ones"
TOO_FEW = "no episodes: too few validation images a class"


@dataclass(frozen=True)
class FewShotConfig:
    """Settings of few-shot curves."""

    weights: WeightsSpec
    data: DataConfig
    shots: tuple[int, ...]  # training images a class, of probes and episodes
    ways: tuple[int, ...]  # classes of an episode
    episodes: int  # number of each kind
    seeds: int  # draws of the probes' images

    def __post_init__(self) -> None:
        for name, values in (("shots", self.shots), ("ways", self.ways), ("episodes", (self.episodes,))):
            if not values:
                raise InputError(f"{name}: must be 1 or more, got none")
            for value in values:
                check_count(name, value)
        check_count("seeds", self.seeds, most=MAX_SEEDS)


def few_shot_curves(config: FewShotConfig, console: Console) -> dict[str, Any]:
    """The weights' curves: "probe", accuracy on all classes by shots, and "episodes", by ways and shots.

    Episodes are drawn from classes that the net was not trained on, as far as that is known; where it was trained on
    all of them, "seen" says so. Where classes have few validation images episodes ask about fewer "queries" a class,
    and with none left there are no episodes. InputError if weights or data cannot be read, or a class has too few
    images.
    """
    weights, data = config.weights.find(), load_classes(config.data, console)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    loader = open_loader(data.without_test(), device, workers=2)
    net = _fit_images(weights.network, loader)
    train, val = (Labelled(*features(net, net.classifier, loader.images(part, BATCH))) for part in ("train", "val"))
    curves = [{n: shot_accuracy(train, val, n, seed) for n in config.shots} for seed in range(config.seeds)]
    probe = [
        {"shots": k} | vars(mean_ci([curve[k] for curve in curves], SHARE, 1 / len(val.y_N))) for k in config.shots
    ]

    known = weights.classes or () if weights.data and _place(weights.data) == _place(data.name) else ()
    new = [label for label, name in enumerate(data.classes) if name not in known]
    pool = val
    if new:
        is_new = torch.isin(val.y_N, torch.tensor(new, device=val.y_N.device))
        pool = Labelled(val.f_ND[is_new], val.y_N[is_new])
    queries = min(QUERIES, int(pool.y_N.bincount()[pool.y_N.unique()].min()) - max(config.shots))
    episodes = episode_table(pool, config.ways, config.shots, config.episodes, 0, queries) if queries > 0 else []
    classes = {"classes": [data.classes[i] for i in new], "seen": not new, "queries": max(0, queries)}
    return {"weights": weights.label, "data": data.name, "probe": probe, "episodes": episodes} | classes


def _place(name: str) -> str:
    """Where a set lies, however its path is spelled; of a set that is no path its name in the current folder."""
    return os.path.realpath(os.path.expanduser(name))


def _fit_images(network: Network, loader: DeviceLoader) -> Network:
    """The network for images of the data's size and channels, on the loader's device."""
    data = loader.data
    if (network.image_size, network.in_chans) == (data.image_size, data.in_chans):
        return network.to(loader.device)
    new = build(network.genotype, network.num_classes, data.image_size, data.in_chans)
    rows = inherit(new, network)
    if is_refitted(rows):
        estimate_norms(new.to(loader.device), recipes.get(recipes.usual(data.name)), loader)
    return new.to(loader.device)


def plot(curves: dict[str, Any], stem: Path) -> list[Path]:
    """Both curves as STEM-probe and STEM-episodes, PNG and SVG."""
    files: list[Path] = []
    for name, title, label, line in (
        ("probe", "linear probe", "training images a class", ""),
        ("episodes", "episodes", "support images a class", "ways"),
    ):
        rows = [
            {"shots": row["shots"], "accuracy": {part: row[part] for part in MISSING}}
            | ({"ways": f"{row['ways']} ways"} if line else {})
            for row in curves[name]
        ]
        title = f"{title}: {curves['weights']} on {curves['data']}"
        spec = PlotSpec(title, "shots", line=line, log_x=True, x_label=label, y_label="accuracy")
        files += draw(rows, spec, stem.with_name(f"{stem.name}-{name}")) if rows else []
    return files


def drawing(curves: dict[str, Any]) -> RenderableType:
    """Both curves as a table for the terminal."""
    found = []
    for part in ("probe", "episodes"):
        for row in curves[part]:
            of = f"episodes of {row['ways']} classes" if part == "episodes" else "linear probe"
            name = f"{of}, {row['shots']} images a class"
            found.append(Finding(name, row["mean"], row["low"], row["high"], n=row["n"]))
    notes = [f"episodes ask about {curves['queries']} images a class" if curves["queries"] else TOO_FEW]
    notes += [SEEN] if curves["seen"] else []
    title = f"accuracy of {curves['weights']} on {curves['data']}, closed form"
    return Group(findings_table(found, title), plain(*notes, style="dim"))
