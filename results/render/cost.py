"""What `alternas cost` says: of our nets in closed form, of timm's by counting."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table

from ...archs import Cost, InputError
from ...archs.errors import check_count, short_repr
from ...archs.zoo import timm_name
from .net import find_arch, parse_size
from .svg import write_svg
from .tables import short
from .terminal import plain

TIMM = "timm:"


def cost_facts(
    arch: str,
    image_size: str = "",
    classes: int | None = None,
    channels: int | None = None,
    batch: int = 1,
    images: int | None = None,
) -> tuple[dict[str, Any], RenderableType]:
    """One net's costs, for JSON and for the terminal.

    Args:
        arch: a zoo name, a genotype's .json file, RUN:TRIAL, or timm:NAME.
        image_size, classes, channels: "" and None take the run's, timm's, or ImageNet's.
        batch: images of the training step whose memory is estimated.
        images: images of a whole training, epochs counted, whose compute is wanted.

    Raises:
        InputError: if there is no such net or a number is wrong.
    """
    for name, value in (("classes", classes), ("channels", channels), ("batch", batch), ("images", images)):
        if value is not None:
            check_count(name, value)
    if arch.startswith(TIMM):
        return _timm_facts(arch.removeprefix(TIMM), image_size, classes, channels, images)
    net, scene = find_arch(arch, image_size, classes, channels)
    cost = scene.cost(net)
    facts = cost.to_dict() | {
        "key": net.key,
        "family": net.family,
        "timm": timm_name(net),
        "image_size": list(scene.image_size),
        "batch": batch,
        "training_bytes": cost.training_bytes(batch),
    }
    if images:
        facts["training_flops"] = cost.training_flops(images)
    lines = [_memory_line(cost, batch), *([_compute_line(cost.training_flops(images), images)] if images else [])]
    if facts["timm"]:
        lines.append(f"in timm: {facts['timm']}")
    return facts, Group(scene.drawing(net), plain(*lines))


def cost_svg(
    arch: str, path: Path, image_size: str = "", classes: int | None = None, channels: int | None = None
) -> None:
    """Write the picture of one net; arguments as of `cost_facts`.

    Raises:
        InputError: if there is no such net, it is timm's, or the file cannot be written.
    """
    if arch.startswith(TIMM):
        raise InputError(f"svg: only nets that have a genotype can be drawn, got {short_repr(arch)}")
    net, scene = find_arch(arch, image_size, classes, channels)
    write_svg(path, scene.svg(net))


def _timm_facts(
    name: str, image_size: str, classes: int | None, channels: int | None, images: int | None
) -> tuple[dict[str, Any], RenderableType]:
    from ...archs.timm import count_timm

    size = parse_size(image_size) if image_size else None
    counted, shape = count_timm(name, size, classes, channels)
    facts = counted | {"timm": name, "image_size": list(shape[1:])}
    if images:
        facts["training_flops"] = 6 * counted["macs"] * images
    table = Table(header_style="bold", box=None, pad_edge=False)
    table.add_column("part")
    for column in ("params", "MACs", "share"):
        table.add_column(column, justify="right")
    for place, part in counted["by_place"].items():
        if part["params"] or part["macs"]:
            share = f"{100 * part['macs'] / max(1, counted['macs']):.1f} %"
            table.add_row(place, short(part["params"]), short(part["macs"]), share)
    kinds = ", ".join(f"{kind} {short(part['macs'])}" for kind, part in counted["by_kind"].items())
    title = plain(f"timm's {name} at {shape[1]}x{shape[2]} px, {shape[0]} channels", style="dim")
    lines = [f"total: {counted['params']:,} params, {counted['macs']:,} MACs ({kinds})"]
    lines += [_compute_line(facts["training_flops"], images)] if images else []
    return facts, Group(title, table, plain(*lines))


def _memory_line(cost: Cost, batch: int) -> str:
    step, alive = short(cost.training_bytes(batch)), short(cost.peak_activation_bytes)
    of_step = f"{step}B a training step with AdamW, batch {batch}"
    return f"memory, float32, estimated: {alive}B of activations an image; {of_step}"


def _compute_line(flops: float, images: int | None) -> str:
    return f"training on {short(images or 0)} images: {flops / 1e18:.3g} exaFLOPs (6 x MACs x images)"
