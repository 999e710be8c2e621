"""Cost formulas of a net's two ends: stem, the norm after the stages, head. Torch-free."""

from .blocks.accumulator import CostAccumulator, size
from .layout import Layout
from .parts import Head, Stem, Style


def stem_cost(acc: CostAccumulator, stem: Stem, style: Style, plan: Layout, in_chans: int) -> None:
    """The pool after a 7x7 / 2 conv halves its map once more."""
    image, out = size(in_chans, plan.image), size(stem.width, plan.stem_map)
    acc.keep(image)
    if stem.kind == "conv":
        conv_stem_cost(acc, stem, plan, in_chans)
        return
    if stem.kind == "patchify":
        acc.conv(in_chans, stem.width, stem.side, plan.stem_map, bias=True)
        at = plan.stem_map
        if stem.norm != "none":
            acc.norm(stem.width)
            acc.keep(out)
    elif stem.kind == "cifar":
        acc.conv(in_chans, stem.width, 3, plan.stem_map)
        at = plan.stem_map
    else:
        at = (-(-plan.image[0] // 2), -(-plan.image[1] // 2))
        acc.conv(in_chans, stem.width, 7, at)
    wide, pooled = size(stem.width, at), at != plan.stem_map
    active = stem.kind == "bit" or (style.order == "post" and stem.kind != "patchify")
    if active:
        acc.norm(stem.width)
        acc.keep(wide, wide)
    elif pooled:
        acc.keep(wide)
    acc.keep(2 * out if pooled else 0)  # the pool's indices are 64 bits
    acc.input_kept = active and not pooled
    padded = wide if stem.kind == "bit" else 0
    acc.alive(image, wide * (2 if active else 1), wide + padded + 3 * out if pooled else out)


def conv_stem_cost(acc: CostAccumulator, stem: Stem, plan: Layout, in_chans: int) -> None:
    at, x = plan.image, size(in_chans, plan.image)
    for number, (c_out, stride) in enumerate(stem.convs, start=1):
        at = (-(-at[0] // stride), -(-at[1] // stride))
        y = size(c_out, at)
        acc.conv(in_chans, c_out, stem.side, at, bias=stem.norm != "none")
        active = number < len(stem.convs) or stem.ends_with == "act"
        acc.norm(c_out)
        acc.keep(y, y * active)
        acc.alive(x, 2 * y)
        in_chans, x, acc.input_kept = c_out, y, active


def last_norm_cost(acc: CostAccumulator, plan: Layout) -> None:
    """The norm of the map after the stages, and its ReLU."""
    x = size(plan.channels, plan.last_map)
    acc.norm(plan.channels)
    acc.keep_input(x)
    acc.alive(x, 2 * x)
    if plan.grid is not None:  # the encoder's patches keep it
        acc.keep(x)
        acc.input_kept = True


def head_cost(acc: CostAccumulator, head: Head, features: int, num_classes: int, plan: Layout) -> None:
    """From the last map, or the encoder's token, to the logits."""
    if head.conv:
        x, y = size(features, plan.last_map), size(head.conv, plan.last_map)
        acc.conv(features, head.conv, 1, plan.last_map)
        acc.norm(head.conv)
        acc.keep(x, 2 * y)
        acc.alive(x, 2 * y)
        features = head.conv
    if head.norm == "layer":
        acc.norm(features)
    if head.hidden:
        normed = head.hidden_norm != "none"
        acc.linear(features, head.hidden, bias=not normed or head.act_first)
        if normed:
            acc.norm(head.hidden)
        features = head.hidden
    acc.linear(features, num_classes)
