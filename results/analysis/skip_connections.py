"""What skip connections carry: how much larger they are than the branch beside them, and what is lost without one.

Raghu et al., NeurIPS 2021, section 5: ratio ||z|| / ||f(z)|| of what the skip brings and what the branch adds, by
token (norms over channels), averaged; class token and spatial tokens apart; MSA and MLP apart; a ResNet by block.
Behind a projecting shortcut z is what the projection gives. The paper trains anew without a skip; here the trained net
loses it (z becomes 0) and is not trained again: accuracy falls further than the paper's. Retraining is a study's work.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from ..analysis_tools.hooks import HookPoint, residual_points, seeing, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, hits
from ..analysis_tools.metrics import interval, largest_loss
from ..analysis_tools.plots import curves


@dataclass(frozen=True)
class Addition:
    """A place where a net computes z + f(z).

    Attributes:
        name: of the residual stream behind it.
        op: what f is: conv, msa or mlp.
        skip, branch: where z and f(z) are heard.
        lead: class tokens in front of the others.
    """

    name: str
    op: str
    skip: HookPoint
    branch: HookPoint
    lead: int


def additions(net: nn.Module) -> list[Addition]:
    """Every addition of a branch to the residual stream, in the order of depth.

    Raises:
        InputError: if the net is of another kind than `residual_sites` takes.
    """
    return [_addition(net, site) for site in residual_points(net) if site.op != "stem"]


@torch.no_grad()
def skip_ratios(net: nn.Module, places: Sequence[Addition], batches: Iterable[Tensor]) -> dict[str, dict[str, float]]:
    """||z|| / ||f(z)|| by place: "spatial", and "cls" where there is a class token; means over tokens and images.

    Tokens to which the branch adds nothing at all are left out; NaN if that is all of them.

    Args:
        net: any net of `residual_sites`.
        places: of `additions`.
        batches: x_BCHW as the net wants them.
    """
    sums = {(place.name, kind): np.zeros(2) for place in places for kind in ("cls", "spatial")}
    by_site = {site.name: place for place in places for site in (place.skip, place.branch)}
    held: dict[str, Tensor] = {}

    def see(site: HookPoint, value: Tensor) -> None:
        place = by_site[site.name]
        held[site.name] = value.norm(dim=1).flatten(1) if value.ndim == 4 else value.norm(dim=2)
        if not {place.skip.name, place.branch.name} <= held.keys():
            return
        ratio = held.pop(place.skip.name) / held.pop(place.branch.name)
        for kind, part in (("cls", ratio[:, : place.lead]), ("spatial", ratio[:, place.lead :])):
            kept = part[part.isfinite()].double()
            sums[place.name, kind] += (kept.sum().item(), kept.numel())

    sites = [site for place in places for site in (place.skip, place.branch)]
    with undisturbed(net), seeing(net, sites, see):
        for x_BCHW in batches:
            net(x_BCHW)
    return {
        place.name: {kind: _mean(sums[place.name, kind]) for kind in ("cls", "spatial") if kind != "cls" or place.lead}
        for place in places
    }


@contextmanager
def without_skip(net: nn.Module, place: Addition) -> Iterator[None]:
    """`net` with z = 0 at `place`: a shortcut gives zeros; where there is none the branch gives f(z) - z."""
    held: dict[str, Tensor] = {}
    skip, branch = (net.get_submodule(site.module) for site in (place.skip, place.branch))

    def hold(_: nn.Module, args: Any) -> None:
        held["z"] = args[0]

    def nothing(_: nn.Module, _args: Any, y: Any) -> Tensor:
        return torch.zeros_like(y)

    def less_taken(_: nn.Module, args: Any) -> tuple[Tensor]:
        return (args[0] - held.pop("z"),)

    def less_given(_: nn.Module, _args: Any, y: Any) -> Tensor:
        return y - held.pop("z")

    if place.skip.side == "out":
        hooks: list[Any] = [skip.register_forward_hook(nothing)]
    elif place.branch.side == "in":
        hooks = [skip.register_forward_pre_hook(hold), branch.register_forward_pre_hook(less_taken)]
    else:
        hooks = [skip.register_forward_pre_hook(hold), branch.register_forward_hook(less_given)]
    try:
        yield
    finally:
        for hook in hooks:
            hook.remove()


def analyse(subject: AnalysisInput, batch: int = 64) -> AnalysisResult:
    """Ratio of each skip to its branch, and accuracy of the trained net when that one skip is dropped."""
    net, images, places = subject.net, subject.images, additions(subject.net)
    ratios = skip_ratios(net, places, (x_BCHW for x_BCHW, _ in images.batches(batch)))
    rows = []
    with undisturbed(net):
        right_N = hits(net, images, batch)
        for place in places:
            with without_skip(net, place):
                left_N = hits(net, images, batch)
            found = {"ratio": ratios[place.name]["spatial"], "ratio_cls": ratios[place.name].get("cls")}
            whole, left = right_N.mean().item(), left_N.mean().item()
            low, high = interval((left_N - right_N).tolist())
            rows.append(
                {"place": place.name, "op": place.op}
                | found
                | {"accuracy": whole, "accuracy_without": left, "change": left - whole, "low": low, "high": high}
            )
    title = f"Skip connections of {subject.name}: size beside their branch, accuracy without one"
    return AnalysisResult("skips", title, rows, _reading(rows, len(images)), lambda figure: _draw(figure, rows))


def _addition(net: nn.Module, site: HookPoint) -> Addition:
    path = site.block
    block: Any = net.get_submodule(path)
    skip, side = _skip(path, block)
    if hasattr(block, "drop_path1"):  # a block of timm's VisionTransformer
        branch = (f"{path}.drop_path{1 if site.op == 'msa' else 2}", "in")
    elif site.branch:
        branch = (f"{path}.{site.branch}", "in" if site.branch == "drop_path" else "out")
    else:  # of timm's ResNet
        last = [name for name in ("bn2", "bn3", "se", "drop_path") if getattr(block, name, None) is not None][-1]
        branch = (f"{path}.{last}", "out")
    if site.op == "mlp":
        skip, side = f"{path}.norm2", "in"
    z, f = (
        HookPoint(f"{site.name} z", skip, side, site.op, site.stage),
        HookPoint(f"{site.name} f", *branch, site.op, site.stage),
    )
    return Addition(site.name, site.op, z, f, site.lead)


def _skip(path: str, block: Any) -> tuple[str, str]:
    for name in ("shortcut", "downsample"):
        if getattr(block, name, None) is not None:
            return f"{path}.{name}", "out"
    return path, "in"


def _mean(total: np.ndarray) -> float:
    return float(total[0] / total[1]) if total[1] else math.nan


def _reading(rows: list[dict[str, Any]], images: int) -> str:
    text = []
    known = [row for row in rows if not math.isnan(row["ratio"])]
    high, low = (most(known, key=lambda row: row["ratio"], default=None) for most in (max, min))
    if high and low and high["ratio"] > low["ratio"]:
        text.append(
            f"Beside its branch the skip is largest at {high['place']} ({high['ratio']:.1f} times) and "
            f"smallest at {low['place']} ({low['ratio']:.2f} times)."
        )
    if len(known) < len(rows):
        text.append(f"Of {len(rows)} branches {len(rows) - len(known)} add nothing to any of these images.")
    with_cls = [row for row in rows if row["ratio_cls"] is not None]
    if len(with_cls) > 1:
        text.append(_halves(with_cls))
    return " ".join([*text, _loss(rows, images)])


def _loss(rows: list[dict[str, Any]], images: int) -> str:
    kept = sum(row["low"] <= 0 <= row["high"] for row in rows)
    said = [f"Accuracy is {rows[0]['accuracy']:.1%} on {images} images."]
    said += largest_loss(rows, "without the skip at {place}")
    said.append(f"{kept} of the {len(rows)} skips' 95 % intervals over images hold 0.")
    return " ".join([*said, "Nothing was trained again."])


def _halves(rows: list[dict[str, Any]]) -> str:
    half = len(rows) // 2
    (cls_1, cls_2), (all_1, all_2) = (
        [float(np.nanmean([row[kind] for row in part])) for part in (rows[:half], rows[half:])]
        for kind in ("ratio_cls", "ratio")
    )
    numbers = (
        f"The class token's ratio is {cls_1:.2f} in the first {half} skips of the encoder and {cls_2:.2f} in the other "
        f"{len(rows) - half}, that of the other tokens {all_1:.2f} and {all_2:.2f}"
    )
    if cls_1 > cls_2 and all_1 < all_2:
        return f"{numbers}: in the order of the paper's ViT, whose class token is passed on first and changed later."
    return f"{numbers}."


def _draw(figure: Figure, rows: list[dict[str, Any]]) -> None:
    names = [row["place"] for row in rows]
    ratios = {"maps and spatial tokens": [row["ratio"] for row in rows]}
    if any(row["ratio_cls"] is not None for row in rows):
        ratios["class token"] = [math.nan if row["ratio_cls"] is None else row["ratio_cls"] for row in rows]
    upper, lower = figure.subplots(2, sharex=True)
    curves(upper, names, ratios, "||z|| / ||f(z)||")
    upper.set_yscale("log")
    curves(lower, names, {"without this skip": [row["accuracy_without"] for row in rows]}, "accuracy without it")
    lower.axhline(rows[0]["accuracy"], color="black", linewidth=1, linestyle="--")
