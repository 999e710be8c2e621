"""The two ends of a net as modules: `make_stem`, the norm after the stages, and `make_head`."""

from torch import nn

from .blocks.encoder import LN_EPS
from .blocks.layers import act, conv_norm
from .blocks.residual import Layers
from .layout import Layout
from .parts import Head, Stem, Style


def make_stem(stem: Stem, style: Style, in_chans: int) -> nn.Module:
    """x_BCHW -> x_BCHW; the roots of BiT and its hybrids differ in order, padding and where the norm stands."""
    if stem.kind == "none":
        return nn.Identity()
    if stem.kind == "patchify":
        conv = nn.Conv2d(in_chans, stem.width, stem.side, stride=stem.patch, padding=(stem.side - stem.patch + 1) // 2)
        return conv if stem.norm == "none" else nn.Sequential(conv, stem_norm(stem, stem.width))
    if stem.kind == "conv":
        return conv_stem(stem, in_chans)
    layers = Layers(Style("post", "group") if stem.kind == "bit" else style)
    if stem.kind == "cifar":
        parts, pool = [layers.conv(in_chans, stem.width, 3)], []
    else:
        parts, pool = [layers.conv(in_chans, stem.width, 7, 2)], layers.root_pool()
    if layers.style.order == "post":
        parts += [layers.norm(stem.width), nn.ReLU()]
    return nn.Sequential(*parts, *pool)


def conv_stem(stem: Stem, in_chans: int) -> nn.Sequential:
    """Convs with norm and activation, the first ones with stride 2."""
    parts: list[nn.Module] = []
    for c_out, stride in stem.convs:
        layers = conv_norm(in_chans, c_out, stem.side, stride)
        if stem.norm != "none":
            conv = nn.Conv2d(in_chans, c_out, stem.side, stride=stride, padding=stem.side // 2)
            layers = [conv, stem_norm(stem, c_out)]
        parts += [*layers, act(stem.act)]
        in_chans = c_out
    return nn.Sequential(*parts[: len(parts) - (stem.ends_with == "norm")])


def stem_norm(stem: Stem, channels: int) -> nn.Module:
    """LayerNorm over the channels of a map."""
    from timm.layers.norm import LayerNorm2d

    return LayerNorm2d(channels, eps=LN_EPS)


def last_norm(plan: Layout, style: Style) -> nn.Module | None:
    """The style's norm of the map after the stages, which a ReLU follows."""
    return Layers(style).norm(plan.channels) if plan.final_norm else None


def make_head(head: Head, features: int, num_classes: int) -> nn.Module:
    """z_BC -> logits (B, num_classes), after the pooling. The logits' linear layer alone where there is no more."""
    parts: list[nn.Module] = []
    if head.norm == "layer":
        parts.append(nn.LayerNorm(features, eps=head.norm_eps))
    if head.hidden:
        normed, bias = head.hidden_norm != "none", head.hidden_norm == "none" or head.act_first
        layers = [act(head.act), hidden_norm(head)] if head.act_first else [hidden_norm(head), act(head.act)]
        parts += [nn.Linear(features, head.hidden, bias), *(layers if normed else [act(head.act)])]
        features = head.hidden
    last = nn.Linear(features, num_classes)
    return nn.Sequential(*parts, last) if parts else last


def hidden_norm(head: Head) -> nn.Module:
    if head.hidden_norm == "batch":
        return nn.BatchNorm1d(head.hidden)
    return nn.LayerNorm(head.hidden, eps=head.norm_eps)
