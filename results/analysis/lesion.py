"""What each unit of a trained net is worth: taken out alone, without training again.

Park & Kim, ICLR 2022, section 4 and figure 11 (no code was published). A unit is one conv wider than 1x1, one MSA
or one MLP. A conv that keeps the shape of its map becomes the identity. Any other conv goes with its block's whole
branch, and an MSA or MLP is a branch of its own: then only the shortcut is left.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import pairwise
from statistics import mean
from typing import Any

import torch
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import Tensor, nn

from ..analysis_tools.hooks import HookPoint, residual_points, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, hits
from ..analysis_tools.metrics import interval, largest_loss
from ..analysis_tools.residual_stream import OPS
from ..render.plots import COLOURS

IDENTITY, BRANCH = "conv becomes the identity", "branch removed"


@dataclass(frozen=True)
class Unit:
    """A part of a net that can be taken out.

    Attributes:
        name: for people, such as "stage 2 block 3 conv2".
        op: conv, msa or mlp.
        stage: as the site's behind which it stands.
        module: the name of what is silenced.
        how: IDENTITY, where the module gives back what it takes, or BRANCH, where it gives zeros.
    """

    name: str
    op: str
    stage: str
    module: str
    how: str


def units(net: nn.Module) -> list[Unit]:
    """All units of `net`, in the order of its depth.

    Raises:
        InputError: if the net is of a kind without sites.
    """
    found = [unit for site in residual_points(net) if site.op != "stem" for unit in _units_at(net, site)]
    return list({unit.name: unit for unit in found}.values())


@contextmanager
def lesioned(net: nn.Module, unit: Unit) -> Iterator[None]:
    """`net` without `unit`; a hook does it, so that no weight changes."""
    silent = _identity if unit.how == IDENTITY else _nothing
    hook = net.get_submodule(unit.module).register_forward_hook(silent)
    try:
        yield
    finally:
        hook.remove()


def lesions(subject: AnalysisInput) -> tuple[float, list[dict[str, Any]]]:
    """Accuracy of the whole net, and a row for each unit: accuracy without it, the change, its interval over images."""
    net, rows = subject.net, []
    with undisturbed(net):
        right_N = hits(net, subject.images)
        whole = right_N.mean().item()
        for place, unit in enumerate(units(net)):
            with lesioned(net, unit):
                left_N = hits(net, subject.images)
            left, (low, high) = left_N.mean().item(), interval((left_N - right_N).tolist())
            row = {"place": place, "unit": unit.name, "op": unit.op, "stage": unit.stage, "how": unit.how}
            found = {"accuracy": left, "change": left - whole, "low": low, "high": high}
            rows.append(row | {"module": unit.module} | found)
    return whole, rows


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """The change of accuracy when one unit is taken out, unit by unit.

    Raises:
        InputError: if the net is of a kind without sites.
    """
    whole, rows = lesions(subject)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for op, colour in zip(OPS, COLOURS, strict=False):
            mine = [row for row in rows if row["op"] == op]
            if mine:
                axes.bar([row["place"] for row in mine], [row["change"] for row in mine], color=colour, label=op)
        for row, after in pairwise(rows):
            if row["stage"] != after["stage"]:
                axes.axvline(row["place"] + 0.5, color="#bbbbbb", linewidth=0.8, linestyle="--")
        axes.set_xlabel("depth: the unit taken out\ndashed: end of a stage")
        axes.xaxis.set_major_locator(MaxNLocator(integer=True))
        axes.set_ylabel("change of accuracy")
        axes.legend(frameon=False)

    reading = _reading(whole, rows, len(subject.images))
    return AnalysisResult("lesion", f"{subject.name}: accuracy without one unit", rows, reading, draw)


def _units_at(net: nn.Module, site: HookPoint) -> Iterator[Unit]:
    """Those that have been added to the stream just before it passes `site`."""
    block = net.get_submodule(site.block)
    end = site.branch or _end_of_branch(block)
    if site.op != "conv":
        yield Unit(site.name, site.op, site.stage, f"{site.block}.{end}", BRANCH)
        return
    for name, conv in block.named_children():
        if isinstance(conv, nn.Conv2d) and max(conv.kernel_size) > 1:
            whole = conv.stride == (1, 1) and conv.in_channels == conv.out_channels
            module, how = (name, IDENTITY) if whole else (end, BRANCH)
            yield Unit(f"{site.name} {name}", "conv", site.stage, f"{site.block}.{module}", how)


def _end_of_branch(block: nn.Module) -> str:
    """The last module before the addition in a block of timm's ResNet."""
    if getattr(block, "drop_path", None) is not None:
        return "drop_path"
    return "bn3" if hasattr(block, "bn3") else "bn2"


def _identity(_module: nn.Module, inputs: tuple[Tensor, ...], _output: Tensor) -> Tensor:
    return inputs[0]


def _nothing(_module: nn.Module, _inputs: tuple[Tensor, ...], output: Tensor) -> Tensor:
    return torch.zeros_like(output)


def _reading(whole: float, rows: Sequence[dict[str, Any]], images: int) -> str:
    error = math.sqrt(whole * (1 - whole) / images)
    said = [f"The whole net is right on {whole:.3f} of {images} images (standard error {error:.3f})."]
    kinds = []
    for op in OPS:
        mine = [row["change"] for row in rows if row["op"] == op]
        if mine:
            kinds.append(f"{op} {100 * mean(mine):+.1f} points ({len(mine)} units)")
    said.append(f"Taking one unit out changes accuracy on average by: {', '.join(kinds)}.")
    said += largest_loss(rows, "without {unit} ({op})")
    small = sum(row["low"] <= 0 <= row["high"] for row in rows)
    said.append(f"{small} of the {len(rows)} units' 95 % intervals over images hold 0.")
    removed = sum(row["how"] == BRANCH and row["op"] == "conv" for row in rows)
    if removed:
        said.append(f"Of convs that change their map's shape ({removed}) the block's whole branch was removed.")
    return " ".join(said)
