"""What each layer already knows of the classes: few-shot linear probes along a net.

Raghu et al., NeurIPS 2021, section 6, with Dosovitskiy et al.'s probe (ICLR 2021, section 4.1): 10 images a class,
ridge regression to -1 and +1 in closed form, the penalty chosen on other training images. On the class token, on the
mean of the map (GAP) and on single tokens, which is one place of a map. The paper brings a CNN's maps to the last
one's size by stacking neighbours as channels; here the mean and single places keep each layer's own width.

N images, D features, K classes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.errors import InputError, check_int
from ..analysis_tools.findings import Finding, averaged
from ..analysis_tools.hooks import HookPoint, as_map, residual_points, seeing, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import curves
from ..ranking.stats import SHARE, mean_ci

PENALTIES = tuple(10.0**power for power in range(-2, 5))  # of a probe on standardised features
HELD_OUT = 50  # training images a class, at most, that choose among them
STD_FLOOR = 1e-5  # added to the features' std, as Big Vision's fewshot_lsr.py does
SHOTS = 0  # stream of random numbers; episodes draw from another
FEATURES = {"cls": "class token", "gap": "mean of the map", "token": "single token"}


@dataclass(frozen=True, eq=False)
class Labelled:
    """Features f_ND of images of the classes y_N, on one device. InputError if not all features are finite."""

    f_ND: Tensor
    y_N: Tensor

    def __post_init__(self) -> None:
        if bad := len(self.f_ND) - int(self.f_ND.isfinite().all(1).sum()):
            raise InputError(f"probe: features must be finite, those of {bad} of {len(self.f_ND)} images are not")


def hit_rate(known: Labelled, other: Labelled, penalty: float) -> float:
    """Share of the other images guessed right, by a ridge regression in float64 from the known ones to {-1, +1}^K."""
    from sklearn.linear_model import RidgeClassifier  # takes a second

    # Cholesky of the D x D system or of the N x N one, whichever is smaller; an SVD where that fails.
    ridge = RidgeClassifier(alpha=penalty, solver="cholesky").fit(known.f_ND.double().cpu(), known.y_N.cpu())
    guess_N: Any = ridge.predict(other.f_ND.double().cpu())
    return float((guess_N == other.y_N.cpu().numpy()).mean())


def at_places(images: Labelled, places: list[np.ndarray]) -> Labelled:
    """The images with these indices."""
    at = torch.from_numpy(np.concatenate(places)).to(images.y_N.device)
    return Labelled(images.f_ND[at], images.y_N[at])


def by_class(y_N: Tensor) -> dict[int, np.ndarray]:
    """Indices of each class's images, by class number."""
    labels, counts = np.unique(y := y_N.cpu().numpy(), return_counts=True)
    chunks = np.split(np.argsort(y, kind="stable"), np.cumsum(counts)[:-1])
    return dict(zip(labels.tolist(), chunks, strict=True))


def draw_shots(images: Labelled, shots: int, seed: int) -> tuple[Labelled, Labelled]:
    """`shots` images of each class, and up to HELD_OUT others of each.

    They are the front and the end of one random order of each class, which depends on the labels and the
    seed alone: fewer shots are among more, and the held-out images stay the same while they last.
    """
    random = np.random.default_rng((SHOTS, seed))
    orders = [random.permutation(places) for places in by_class(images.y_N).values()]
    held_out = [order[max(shots, len(order) - HELD_OUT) :] for order in orders]
    return at_places(images, [order[:shots] for order in orders]), at_places(images, held_out)


def shot_accuracy(train: Labelled, test: Labelled, shots: int, seed: int) -> float:
    """Test accuracy of a linear probe on `shots` training images of each class.

    Regularised least squares to {-1, +1}^K (Dosovitskiy et al., ICLR 2021, section 4.1) on features standardised by the
    shots' mean and std. The penalty of PENALTIES is the one that is most accurate on held-out training images (as Raghu
    et al., NeurIPS 2021, tune it), of equals the largest; where no training image is left to hold out it is the middle
    one. The probe itself sees the shots only. InputError if a class of train or test has fewer than `shots` training
    images.
    """
    check_int("probe", "shots", shots)
    places = by_class(train.y_N)
    for label in sorted({*places, *test.y_N.unique().tolist()}):
        if (count := len(places.get(label, ()))) < shots:
            raise InputError(f"probe: {shots} shots need {shots} training images of class {label}, there are {count}")
    drawn, held_out = draw_shots(train, shots, seed)
    mean_D, std_D = drawn.f_ND.double().mean(0), drawn.f_ND.double().std(0, correction=0) + STD_FLOOR
    drawn, held_out, test = (Labelled((part.f_ND - mean_D) / std_D, part.y_N) for part in (drawn, held_out, test))
    penalty = PENALTIES[len(PENALTIES) // 2]
    if len(held_out.y_N):
        penalty = max(reversed(PENALTIES), key=lambda each: hit_rate(drawn, held_out, each))
    return hit_rate(drawn, test, penalty)


@torch.no_grad()
def features_of(net: nn.Module, sites: Sequence[HookPoint], batches: Iterable[Tensor]) -> dict[tuple[str, str], Tensor]:
    """f_ND by (site, what it is of), in eval mode: "cls" where there is a class token, "gap", and "token ROW,COLUMN".

    `batches` are x_BCHW as the net wants them. Single tokens are those in the middle of a map's four quarters.
    """
    values: dict[tuple[str, str], list[Tensor]] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        map_BCHW = as_map(site, value)
        parts = {"gap": map_BCHW.mean((2, 3))} | ({"cls": value[:, 0].clone()} if site.lead else {})
        rows, columns = (sorted({side // 4, 3 * side // 4}) for side in map_BCHW.shape[2:])  # fewer where they coincide
        for row in rows:
            for column in columns:
                parts[f"token {row},{column}"] = map_BCHW[:, :, row, column].clone()
        for kind, part in parts.items():
            values.setdefault((site.name, kind), []).append(part)

    with undisturbed(net), seeing(net, sites, see):
        for x_BCHW in batches:
            net(x_BCHW)
    return {key: torch.cat(parts) for key, parts in values.items()}


def every_second(y_N: Tensor) -> Tensor:
    """True for every second image of each class, from its first on."""
    chosen_N = torch.zeros(len(y_N), dtype=torch.bool, device=y_N.device)
    for places in by_class(y_N).values():
        chosen_N[torch.from_numpy(places[::2])] = True
    return chosen_N


def analyse(subject: AnalysisInput, shots: int = 10, draws: int = 3, batch: int = 64) -> AnalysisResult:
    """Accuracy of linear probes after the stem and every block, over `draws` of every second image of a class."""
    images, sites = subject.images, residual_points(subject.net)
    train_N, rows = every_second(images.y_N), []
    for (place, kind), f_ND in features_of(subject.net, sites, images.inputs(batch)).items():
        train, test = (Labelled(f_ND[at], images.y_N[at]) for at in (train_N, ~train_N))
        ci = mean_ci([shot_accuracy(train, test, shots, seed) for seed in range(draws)], SHARE, 1 / len(test.y_N))
        rows.append({"place": place, "features": kind, "accuracy": ci.mean, "low": ci.low, "high": ci.high})
        rows[-1] |= {"shots": shots, "draws": draws}
    names = [site.name for site in sites]

    def draw(figure: Figure) -> None:
        ys = {FEATURES[kind]: values for kind, values in _by_kind(rows, names).items()}
        curves(figure.add_subplot(), names, ys, "accuracy of the probe")

    title = f"What a linear probe reads in {subject.name} from {shots} images a class"
    return AnalysisResult(title, rows, findings(rows, names, int((~train_N).sum())), draw)


def _by_kind(rows: Rows, names: Sequence[str]) -> dict[str, list[float]]:
    """Accuracy by place for each kind of features, single tokens averaged; NaN where a place has none."""
    by_kind = {}
    for kind in FEATURES:
        mine = [row for row in rows if row["features"].startswith(kind)]
        cells = [[row["accuracy"] for row in mine if row["place"] == name] for name in names]
        if mine:
            by_kind[kind] = [float(np.mean(cell)) if cell else math.nan for cell in cells]
    return by_kind


def findings(rows: Rows, names: Sequence[str], test: int) -> list[Finding]:
    """Accuracies of probes on so many test images: at both ends, of each kind of features, and by half of the depth."""
    found = []
    gap = [row for row in rows if row["features"] == "gap"]
    last = [row for row in rows if row["place"] == names[-1] and row["features"] in ("gap", "cls")]
    for at, row in (("first place", gap[0]), *(("last place", row) for row in last)):
        of = f"probe of the {FEATURES[row['features']]}, {at}"
        found.append(Finding(of, row["accuracy"], row["low"], row["high"], over="draws", n=row["draws"]))
    tokens = [row["accuracy"] for row in rows if row["place"] == names[-1] and row["features"].startswith("token")]
    found.append(averaged("probe of a single token, last place", tokens))
    values, half = [row["accuracy"] for row in gap], len(gap) // 2
    found += [averaged("probe, lower half of the places", values[:half])]
    found += [averaged("probe, upper half of the places", values[half:])]
    return [replace(finding, resolution=1 / test) for finding in found]
