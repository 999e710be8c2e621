"""The costs of one net as `cost` prints them: ours from closed formulas, of timm counted. Reads records; no Ray."""

from typing import Any

from rich.console import Group, RenderableType

from ...archs import Cost, Genotype
from ...archs.cost import BACKWARD_FACTOR
from ...archs.errors import check_count
from ...archs.timm_net import TIMM, CutNet, net_cost
from ...archs.zoo import timm_name
from ..ranking.quantities import static_values
from .describe_net import InputSpec, find_arch, parse_size, recorded_cut
from .tables import costs_text, short, text_table
from .terminal import plain


def cost_facts(
    arch: str,
    image_size: str = "",
    classes: int | None = None,
    channels: int | None = None,
    batch: int = 1,
    images: int | None = None,
) -> tuple[dict[str, Any], RenderableType]:
    """The costs of a zoo name, a genotype's .json file, RUN:TRIAL or timm:NAME, for JSON and for the terminal.

    Sizes left out are the run's, timm's, or ImageNet's; `batch` is of a training step, whose memory is estimated,
    `images` of a whole training, epochs counted, whose compute is wanted. InputError if there is no such net or a
    number is wrong.
    """
    for name, value in (("classes", classes), ("channels", channels), ("batch", batch), ("images", images)):
        if value is not None:
            check_count(name, value)
    if arch.startswith(TIMM):
        facts, parts = _timm_facts(arch.removeprefix(TIMM), image_size, classes, channels)
    elif cut := recorded_cut(arch, image_size):
        facts, parts = _cut_facts(*cut, classes)
    else:
        facts, parts = _own_facts(*find_arch(arch, image_size, classes, channels), batch)
    facts |= static_values(facts)
    if images:
        facts["training_flops"] = flops = BACKWARD_FACTOR * facts["macs"] * images
        parts.append(plain(f"training on {short(images)} images: {flops / 1e18:.3g} exaFLOPs (6 x MACs x images)"))
    return facts, Group(*parts)


def _own_facts(net: Genotype, spec: InputSpec, batch: int) -> tuple[dict[str, Any], list[RenderableType]]:
    cost, timm = spec.cost(net), timm_name(net)
    assert isinstance(cost, Cost)
    step_bytes, gpu_bytes = cost.training_bytes(batch), cost.gpu_training_bytes(batch)
    facts = cost.to_dict() | {"key": net.key, "family": net.family, "timm": timm, "image_size": [*spec.image_size]}
    facts |= {"batch": batch, "training_bytes": step_bytes, "gpu_training_bytes": gpu_bytes}
    lines = [
        f"one image: {costs_text(cost.totals())}",
        f"memory of a training step with AdamW, float32, batch {batch}, estimated: {short(step_bytes)}B",
        f"on a GPU in bfloat16: {short(gpu_bytes)}B, CUDA itself included, the data not",
    ]
    return facts, [spec.drawing(net), plain(*lines, *([f"in timm: {timm}"] if timm else []))]


def _cut_facts(net: CutNet, spec: InputSpec, classes: int | None) -> tuple[dict[str, Any], list[RenderableType]]:
    totals = net_cost(net, classes or spec.classes, spec.image_size).totals()
    facts = totals | {"key": net.key, "family": net.family, "image_size": [net.side] * 2} | net.to_dict()
    where = f"{net.source} cut after block {net.block} at {net.side} px, pooled by {net.pooling}"
    return facts, [plain(f"{where}: {costs_text(totals)}")]


def _timm_facts(
    name: str, image_size: str, classes: int | None, channels: int | None
) -> tuple[dict[str, Any], list[RenderableType]]:
    from ...archs.timm import count_timm

    counted, shape = count_timm(name, parse_size(image_size) if image_size else None, classes, channels)
    rows = [
        {
            "part": place,
            "params": short(part["params"]),
            "MACs": short(part["macs"]),
            "share": f"{100 * part['macs'] / max(1, counted['macs']):.1f} %",
        }
        for place, part in counted["by_place"].items()
        if part["params"] or part["macs"]
    ]
    kinds = ", ".join(f"{kind} {short(part['macs'])}" for kind, part in counted["by_kind"].items())
    title = plain(f"timm's {name} at {shape[1]}x{shape[2]} px, {shape[0]} channels", style="dim")
    total = plain(f"total: {counted['params']:,} params, {counted['macs']:,} MACs ({kinds})")
    return counted | {"timm": name, "image_size": list(shape[1:])}, [title, text_table(rows, left=("part",)), total]
