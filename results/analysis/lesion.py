"""Lesion study: the accuracy lost when one unit of a trained net is taken out, without training again.

Park & Kim, ICLR 2022, section 4 and figure 11 (no code was published). A unit is one conv wider than 1x1, one MSA
or one MLP. A conv that keeps the shape of its map becomes the identity. Any other conv goes with its block's whole
branch, as do convs that stand deeper in a block, and an MSA or MLP is a branch of its own: then only the shortcut is
left.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from itertools import pairwise

from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator
from torch import nn

from ...archs.errors import InputError
from ..analysis_tools.hooks import hooked, residual_points, silence, undisturbed
from ..analysis_tools.inputs import AnalysisInput, AnalysisResult, Clean, change_columns, hits
from ..analysis_tools.output import OPS
from ..render.plots import COLOURS

IDENTITY, BRANCH = "conv becomes the identity", "branch removed"
LOSS = "loss without a unit"


@dataclass(frozen=True)
class Unit:
    """A part of a net that can be taken out."""

    name: str  # for people, such as "stage 2 block 3 conv2"
    op: str  # conv, msa or mlp
    stage: str  # of the site after which it stands
    module: str  # the name of what is silenced
    how: str  # IDENTITY, where the module gives back what it takes, or BRANCH, where it gives zeros


def units(net: nn.Module) -> list[Unit]:
    """All units of `net`, in the order of its depth."""
    by_name: dict[str, Unit] = {}
    for site in residual_points(net):
        end, _ = site.branch
        if end and site.op in ("msa", "mlp"):
            by_name[site.name] = Unit(site.name, site.op, site.stage, end, BRANCH)
        if site.op != "conv":
            continue
        for layer, conv in net.get_submodule(site.block).named_modules():
            if isinstance(conv, nn.Conv2d) and max(conv.kernel_size) > 1 and not layer.startswith(("shortcut", "down")):
                same = conv.stride == (1, 1) and conv.in_channels == conv.out_channels
                if not same and not end:  # nothing would be left
                    continue
                module, how = (f"{site.block}.{layer}", IDENTITY) if same else (end, BRANCH)
                name = f"{site.name} {layer}"
                by_name[name] = Unit(name, "conv", site.stage, module, how)
    return list(by_name.values())


def lesioned(net: nn.Module, unit: Unit) -> AbstractContextManager[None]:
    """`net` without `unit`; a hook does it, so that no weight changes."""
    hook = (lambda _module, args, _y: args[0]) if unit.how == IDENTITY else silence
    return hooked([net.get_submodule(unit.module).register_forward_hook(hook)])


def analyse(subject: AnalysisInput) -> AnalysisResult:
    """The change of accuracy when one unit is taken out, unit by unit."""
    net, rows = subject.net, []
    if not units(net):
        raise InputError("lesion: this net has no conv, MSA or MLP that could be taken out")
    with undisturbed(net):
        whole_N = hits(net, subject.images)
        for place, unit in enumerate(units(net)):
            with lesioned(net, unit):
                left_N = hits(net, subject.images)
            row = {"place": place, "unit": unit.name, "op": unit.op, "stage": unit.stage, "how": unit.how}
            row |= {"module": unit.module, "accuracy": left_N.mean().item()}
            rows.append(row | change_columns(left_N - whole_N))

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

    clean = Clean.of(whole_N.mean().item(), subject.images)
    by_op = {op: [row["change"] for row in rows if row["op"] == op] for op in OPS}
    findings = [
        clean.finding,
        *(clean.loss(f"{LOSS}, {op}", changes, "units") for op, changes in by_op.items() if changes),
        clean.largest_loss(rows, "without {unit}"),
    ]
    return AnalysisResult(f"{subject.name}: accuracy without one unit", rows, findings, draw)
