"""Skip connections: how much larger they are than the branch beside them, and the accuracy lost without one.

Raghu et al., NeurIPS 2021, section 5: ratio ||z|| / ||f(z)|| of what the skip brings and what the branch adds, by
token (norms over channels), averaged; class token and spatial tokens apart; MSA and MLP apart; a ResNet by block.
Behind a projecting shortcut z is what the projection gives. The paper trains anew without a skip; here the trained net
loses it (z becomes 0) and is not trained again: accuracy falls further than the paper's. Retraining is a study's work.
"""

import math
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ...archs.blocks.residual import PostMsaBlock
from ...archs.errors import InputError
from ..analysis_tools.findings import Finding
from ..analysis_tools.hooks import HookPoint, hooked, residual_points, seeing, silence, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Clean, Rows, change_columns, hits
from ..analysis_tools.output import curves

LOSS, RATIO = "loss without a skip", "log ratio of skip to branch, first half less second"


@dataclass(frozen=True)
class Addition:
    """A place where a net computes z + f(z)."""

    name: str  # of the residual stream after it
    op: str  # what f is: conv, msa or mlp
    skip: HookPoint  # where z is heard
    branch: HookPoint  # where f(z) is heard
    lead: int  # class tokens in front of the others


def additions(net: nn.Module) -> list[Addition]:
    """Every addition of a branch to the residual stream, in the order of depth."""
    places, last = list[Addition](), None
    for site in residual_points(net):
        if not site.branch[0]:
            continue
        block = net.get_submodule(site.block)
        named = ("shortcut", "downsample")
        shortcuts = [name for name in named if getattr(block, name, None) is not None]
        skip = (f"{site.block}.{shortcuts[0]}", "out") if shortcuts else (site.block, "in")
        if not shortcuts and getattr(block, "position", None) is not None:  # the stream with its positions
            skip = (f"{site.block}.{'conv' if isinstance(block, PostMsaBlock) else 'norm1'}", "in")
        if last is not None and last.block == site.block:  # its z is the sum after the branch before
            skip = (last.module, last.side)
        last = site
        z = HookPoint(f"{site.name} z", *skip, site.op, site.stage)
        f = HookPoint(f"{site.name} f", *site.branch, site.op, site.stage)
        places.append(Addition(site.name, site.op, z, f, site.lead))
    return places


@torch.no_grad()
def skip_ratios(net: nn.Module, places: Sequence[Addition], batches: Iterable[Tensor]) -> dict[str, dict[str, float]]:
    """||z|| / ||f(z)|| by place: "spatial", and "cls" where there is a class token; means over tokens and images.

    Tokens to which the branch adds nothing at all are left out; NaN if that is all of them. `batches` are x_BCHW as the
    net wants them.
    """
    kinds = {place.name: ("cls", "spatial") if place.lead else ("spatial",) for place in places}
    sums = {name: {kind: np.zeros(2) for kind in of} for name, of in kinds.items()}
    by_site = {site.name: place for place in places for site in (place.skip, place.branch)}
    norms: dict[str, Tensor] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        place = by_site[site.name]
        norms[site.name] = value.norm(dim=1).flatten(1) if value.ndim == 4 else value.norm(dim=2)
        if not {place.skip.name, place.branch.name} <= norms.keys():
            return
        ratio = norms.pop(place.skip.name) / norms.pop(place.branch.name)
        parts = {"cls": ratio[:, : place.lead], "spatial": ratio[:, place.lead :]}
        for kind, total in sums[place.name].items():
            finite = parts[kind][parts[kind].isfinite()].double()
            total += (finite.sum().item(), finite.numel())

    with undisturbed(net), seeing(net, [site for place in places for site in (place.skip, place.branch)], see):
        for x_BCHW in batches:
            net(x_BCHW)
    return {
        name: {kind: float(total / count) if count else math.nan for kind, (total, count) in by_kind.items()}
        for name, by_kind in sums.items()
    }


def without_skip(net: nn.Module, place: Addition) -> AbstractContextManager[None]:
    """`net` with z = 0 at `place`: a shortcut gives zeros; where there is none the branch gives f(z) - z."""
    skip, branch = (net.get_submodule(site.module) for site in (place.skip, place.branch))
    if place.skip.side == "out":
        return hooked([skip.register_forward_hook(silence)])
    held: dict[str, Tensor] = {}
    hold = skip.register_forward_pre_hook(lambda _, args: held.update(z=args[0]))
    if place.branch.side == "in":
        return hooked([hold, branch.register_forward_pre_hook(lambda _, args: (args[0] - held.pop("z"),))])

    def subtract(_module: nn.Module, _args: Any, y: Any) -> Tensor:
        return y - held.pop("z")

    return hooked([hold, branch.register_forward_hook(subtract)])


def analyse(subject: AnalysisInput, batch: int = 64) -> AnalysisResult:
    """Ratio of each skip to its branch, and accuracy of the trained net when that one skip is dropped."""
    net, images, places = subject.net, subject.images, additions(subject.net)
    if not places:
        raise InputError("skips: this net has no skip connection")
    ratios = skip_ratios(net, places, images.inputs(batch))
    rows = []
    with undisturbed(net):
        whole_N = hits(net, images)
        for place in places:
            with without_skip(net, place):
                left_N = hits(net, images)
            ratio = ratios[place.name]
            row = {"place": place.name, "op": place.op, "ratio": ratio["spatial"], "ratio_cls": ratio.get("cls")}
            row |= {"accuracy": whole_N.mean().item(), "accuracy_without": left_N.mean().item()}
            rows.append(row | change_columns(left_N - whole_N))
    title = f"Skip connections of {subject.name}: size beside their branch, accuracy without one"
    clean = Clean.of(whole_N.mean().item(), images)
    return AnalysisResult(title, rows, findings(rows, clean), lambda figure: _draw(figure, rows))


def findings(rows: Rows, clean: Clean) -> list[Finding]:
    """Accuracy lost without a skip, and whether skips are larger in the first half of the net or in the second."""
    found = [
        clean.finding,
        clean.loss(LOSS, [row["change"] for row in rows], "skips"),
        clean.largest_loss(rows, "without the skip at {place}"),
    ]
    for column, of in (("ratio", "other tokens"), ("ratio_cls", "class token")):
        logs = [math.log(row[column]) for row in rows if row[column]]
        halves = [log for log in logs if math.isfinite(log)]
        half = len(halves) // 2
        if half:
            found.append(Finding(f"{RATIO}, {of}", float(np.mean(halves[:half]) - np.mean(halves[half:]))))
    return found


def _draw(figure: Figure, rows: Rows) -> None:
    names = [row["place"] for row in rows]
    ratios = {"maps and spatial tokens": [row["ratio"] for row in rows]}
    if any(row["ratio_cls"] is not None for row in rows):
        ratios["class token"] = [math.nan if row["ratio_cls"] is None else row["ratio_cls"] for row in rows]
    upper, lower = figure.subplots(2, sharex=True)
    curves(upper, names, ratios, "||z|| / ||f(z)||")
    upper.set_yscale("log")
    curves(lower, names, {"without this skip": [row["accuracy_without"] for row in rows]}, "accuracy without it")
    lower.axhline(rows[0]["accuracy"], color="black", linewidth=1, linestyle="--")
