"""Whether heads that look near by do what a CNN does: CKA of each head with the lower layers of a CNN.

Raghu et al., NeurIPS 2021, section 4 and figure 4: heads of the first attention layers, by their mean distance, beside
the lower layers of a ResNet. What a head gives before the projection is compared over the same images.

N heads, S places of the CNN.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from scipy.stats import spearmanr
from torch import Tensor, nn

from ..analysis_tools.attention_weights import attention_sites, head_outputs
from ..analysis_tools.findings import UNDECIDED, Finding, measured
from ..analysis_tools.hooks import HookPoint, entering, residual_points, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Rows
from ..analysis_tools.output import curves
from .attention_distance import attention_distances
from .cka import MIN_IMAGES, CkaSums, centred, check_same, gram, grams

LAYERS = 4  # attention layers looked at, from the first on
CLEAR = 1.96  # of a rank correlation times the root of one less than the heads: normal where there is none


@torch.no_grad()
def head_grams(net: nn.Module, sites: Sequence[HookPoint], x_BCHW: Tensor) -> list[Tensor]:
    """The centred Gram matrix of what each head of these attention modules gives, layer by layer."""
    k_NN: dict[str, list[Tensor]] = {}

    def see(name: str, module: nn.Module, args: Any) -> None:
        y_BNTD = head_outputs(module, args)
        k_NN[name] = [centred(gram(head.contiguous(), len(x_BCHW))) for head in y_BNTD.unbind(1)]

    with undisturbed(net), entering(net, [site.module for site in sites], see):
        net(x_BCHW)
    return [head for site in sites for head in k_NN[site.module]]


def analyse(subject: AnalysisInput, cnn: AnalysisInput, batch: int = 128) -> AnalysisResult:
    """CKA of the heads of the first attention layers with the lower half of a CNN's residual stream."""
    check_same(subject, cnn)
    sites = attention_sites(subject.net)[:LAYERS]
    places = residual_points(cnn.net)
    places, sums = places[: max(1, len(places) // 2)], CkaSums()
    for x_BCHW in subject.images.inputs(batch):
        if len(x_BCHW) >= MIN_IMAGES:
            sums.add(head_grams(subject.net, sites, x_BCHW), grams(cnn.net, places, x_BCHW))
    cka_NS = sums.cka("heads")
    distances = attention_distances(subject.net, subject.images.inputs(batch))
    heads = [(site.name, i, px) for site in sites for i, px in enumerate(distances[site.name].heads)]
    rows = [
        {"layer": name, "head": head, "distance_px": px, "place": place.name, "cka": value.item()}
        for (name, head, px), cka_S in zip(heads, cka_NS, strict=True)
        for place, value in zip(places, cka_S, strict=True)
    ]
    title = f"Heads of {subject.name} beside the lower layers of {cnn.name}"
    return AnalysisResult(title, rows, findings(rows), lambda figure: _draw(figure, rows))


def _by_head(rows: Rows) -> list[tuple[float, list[float]]]:
    """Distance and CKA with each place, of each head, the nearest first."""
    heads: dict[tuple[str, int], tuple[float, list[float]]] = {}
    for row in rows:
        heads.setdefault((row["layer"], row["head"]), (row["distance_px"], []))[1].append(row["cka"])
    return sorted(heads.values(), key=lambda head: head[0])


def findings(rows: Rows) -> list[Finding]:
    """CKA of the heads that look near by and of those that look far, and its rank correlation with the distance."""
    heads = _by_head(rows)
    half = len(heads) // 2
    means = [float(np.nanmean(cka_S)) for _, cka_S in heads]
    found = [
        measured("CKA of the nearer half of the heads", means[: half or 1], "heads"),
        measured("CKA of the farther half of the heads", means[len(means) - half :], "heads"),
    ]
    if half:
        correlation: Any = spearmanr([distance for distance, _ in heads], means)
        trend = float(correlation.statistic)
        told = abs(trend) * (len(heads) - 1) ** 0.5 > CLEAR
        verdict = UNDECIDED if not told else "nearer heads are more like it" if trend < 0 else "farther heads are"
        value = None if np.isnan(trend) else trend
        found.append(Finding("rank correlation of CKA and distance", value, verdict=verdict, n=len(heads)))
    return found


def _draw(figure: Figure, rows: Rows) -> None:
    """A curve of the CNN's places for each third of the heads, by distance."""
    heads, places = _by_head(rows), list(dict.fromkeys(row["place"] for row in rows))
    thirds = np.array_split(np.arange(len(heads)), min(3, len(heads)))
    names = {1: ("all",), 2: ("nearer", "farther"), 3: ("near", "middle", "far")}[len(thirds)]
    ys = {}
    for name, part in zip(names, thirds, strict=True):
        count = f"{len(part)} head{'s' * (len(part) > 1)}"
        label = f"{name}: {count}, {heads[part[0]][0]:.1f} to {heads[part[-1]][0]:.1f} px"
        ys[label] = np.mean([heads[i][1] for i in part], axis=0).tolist()
    curves(figure.add_subplot(), places, ys, "unbiased linear CKA")
