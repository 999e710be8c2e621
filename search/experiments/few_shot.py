"""Few-shot accuracy of trained weights on any data: K-shot linear probes and K-way N-shot episodes, in closed form."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.console import Console, Group, RenderableType
from rich.table import Table

from ...archs import InputError, Network, build
from ...archs.errors import MOST_SEEDS, check_count
from ...results.analysis_tools.metrics import Labelled, shot_curve
from ...results.ranking.stats import SHARE, MeanCI, mean_ci, mean_ci_text
from ...results.render.experiment import PlotSpec
from ...results.render.plots import draw
from ...results.render.terminal import plain
from ...results.runs.weights import LoadedWeights, WeightsSpec
from ..data.dataset import DataConfig, DataSet
from ..data.load import load_showing
from ..training.episodes import BATCH, episode_table, features
from ..training.inherit import inherit
from ..training.job import QUERIES
from ..training.loaders import open_loader

SEEN = "the net was trained on these very images and classes: nothing here says how it learns new ones"
TOO_FEW = "no episodes: too few validation images a class"


@dataclass(frozen=True)
class FewShotRun:
    """What is measured.

    Attributes:
        weights: whose features.
        data: what to measure on.
        shots: training images a class, of probes and episodes.
        ways: classes of an episode.
        episodes: of each kind.
        seeds: draws of the probes' images.
    """

    weights: WeightsSpec
    data: DataConfig
    shots: tuple[int, ...]
    ways: tuple[int, ...]
    episodes: int
    seeds: int

    def __post_init__(self) -> None:
        for name, values in (("shots", self.shots), ("ways", self.ways), ("episodes", (self.episodes,))):
            if not values:
                raise InputError(f"{name}: must be 1 or more, got none")
            for value in values:
                check_count(name, value)
        check_count("seeds", self.seeds, most=MOST_SEEDS)


def measure(asked: FewShotRun, console: Console) -> dict[str, Any]:
    """The weights' curves: "probe", accuracy on all classes by shots, and "episodes", by ways and shots.

    Episodes are drawn from classes that the net was not trained on, as far as that is known; where it was
    trained on all of them, "seen" says so. Where classes have few validation images episodes ask about
    fewer "queries" a class, and with none left there are no episodes.

    Raises:
        InputError: if weights or data cannot be read, or a class has too few images.
    """
    found = asked.weights.find()
    data = load_showing(asked.data, console)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = fitted(found.network, data).to(device)
    bench = open_loader(data.without_test(), device, workers=2)
    train, val = (Labelled(*features(net, bench.images(part, BATCH))) for part in ("train", "val"))
    curves = [shot_curve(train, val, asked.shots, seed) for seed in range(asked.seeds)]
    probe = [{"shots": k} | vars(mean_ci([curve[k] for curve in curves], SHARE)) for k in asked.shots]
    new = new_classes(found, data)
    pool = _of(val, new or tuple(range(len(data.classes))))
    queries = min(QUERIES, int(pool.y_N.bincount()[pool.y_N.unique()].min()) - max(asked.shots))
    sizes = (asked.ways, asked.shots, asked.episodes, 0, queries)
    episodes = episode_table(pool, *sizes) if queries > 0 else []
    classes = {"classes": [data.classes[i] for i in new], "seen": not new, "queries": max(0, queries)}
    return {"weights": found.label, "data": data.name, "probe": probe, "episodes": episodes} | classes


def new_classes(found: LoadedWeights, data: DataSet) -> tuple[int, ...]:
    """Labels that the net was not trained on: all of another set, those left out of the same one."""
    known = found.classes or () if found.data == data.name else ()
    return tuple(label for label, name in enumerate(data.classes) if name not in known)


def _of(images: Labelled, labels: tuple[int, ...]) -> Labelled:
    kept = torch.isin(images.y_N, torch.tensor(labels, device=images.y_N.device))
    return Labelled(images.f_ND[kept], images.y_N[kept])


def plot(found: dict[str, Any], stem: Path) -> list[Path]:
    """Both curves as STEM-probe and STEM-episodes, PNG and SVG."""
    probe = [
        {"shots": row["shots"], "accuracy": {k: v for k, v in row.items() if k != "shots"}} for row in found["probe"]
    ]
    episodes = [
        {"shots": row["shots"], "ways": f"{row['ways']} ways", "accuracy": _interval(row)} for row in found["episodes"]
    ]
    at = {name: stem.with_name(f"{stem.name}-{name}") for name in ("probe", "episodes")}
    title = f"{found['weights']} on {found['data']}"
    label = "training images a class"
    files = draw(
        probe, PlotSpec(f"linear probe: {title}", "shots", log_x=True, x_label=label, y_label="accuracy"), at["probe"]
    )
    sight = PlotSpec(
        f"episodes: {title}", "shots", line="ways", log_x=True, x_label="support images a class", y_label="accuracy"
    )
    return files + (draw(episodes, sight, at["episodes"]) if episodes else [])


def _interval(row: dict[str, Any]) -> dict[str, Any]:
    return {"mean": row["accuracy"], "sd": None, "n": row["episodes"], "low": row["low"], "high": row["high"]}


def fitted(network: Network, data: DataSet) -> Network:
    """The network for images of the data's size and channels."""
    if (network.image_size, network.in_chans) == (data.image_size, data.in_chans):
        return network
    new = build(network.genotype, network.num_classes, data.image_size, data.in_chans)
    inherit(new, network)
    return new


def drawing(found: dict[str, Any]) -> RenderableType:
    """What `measure` found, for the terminal."""
    probe, episodes = (
        Table(box=None, header_style="bold", pad_edge=False),
        Table(box=None, header_style="bold", pad_edge=False),
    )
    for table, names in ((probe, ("shots", "accuracy")), (episodes, ("ways", "shots", "accuracy", "95 % interval"))):
        for name in names:
            table.add_column(name, justify="right")
    for row in found["probe"]:
        probe.add_row(str(row["shots"]), mean_ci_text(MeanCI(**{k: v for k, v in row.items() if k != "shots"})))
    for row in found["episodes"]:
        episodes.add_row(
            str(row["ways"]), str(row["shots"]), f"{row['accuracy']:.4f}", f"{row['low']:.4f} to {row['high']:.4f}"
        )
    title = plain(f"linear probe of {found['weights']} on {found['data']}, closed form", style="bold")
    notes = [f"episodes ask about {found['queries']} images a class" if found["queries"] else TOO_FEW]
    notes += [SEEN] if found["seen"] else []
    return Group(title, probe, plain("", "episodes", style="bold"), episodes, plain(*notes, style="dim"))
