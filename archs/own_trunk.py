"""The trunk of an `OwnNet`, and where it can be cut: what cut_points.py finds of timm's nets."""

from typing import Any

from torch import Tensor, nn

from .network import build, resized
from .own_net import OwnNet
from .timm.cuts import CutPoint


def own_trunk(net: OwnNet, side: int | None, state: dict[str, Tensor] | None, drop_path: float) -> nn.Module:
    """The net without its head; arguments as of `timm.cut_points.trunk`.

    Raises:
        InputError: if the net takes no images of that side.
    """
    side = side or net.side
    net.check(side)
    network: Any = build(net.genotype, 1, side if state is None else net.side, net.in_chans, drop_path=drop_path)
    if state is not None:
        head = {name: tensor for name, tensor in network.state_dict().items() if name.startswith("head.")}
        network.load_state_dict({name: of for name, of in state.items() if not name.startswith("head.")} | head)
        if side != net.side:
            network = resized(network, side, drop_path=drop_path)
    network.head = nn.Identity()
    network.pretrained_cfg = {  # as timm's nets have it
        "input_size": (net.in_chans, side, side), "mean": net.mean, "std": net.std, "interpolation": "bicubic",
    }  # fmt: skip
    return network


def own_points(net: OwnNet) -> tuple[CutPoint, ...]:
    """All blocks of the net, and what is behind the last one and in front of the head."""
    plan, head, encoder = net.genotype.plan(net.side, net.in_chans), net.genotype.head, net.genotype.encoder
    found: list[tuple[str, int, str]] = [
        (f"stages.{i}.{j}", block.c_out, "NCHW") for i, stage in enumerate(plan.stages) for j, block in enumerate(stage)
    ]
    if encoder is not None:
        places = [*(f"encoder.blocks.{number}" for number in range(encoder.depth)), "encoder.norm"]
        found += [(place, encoder.embed_dim, "NLC") for place in places]
    elif head.conv:
        found.append(("last_conv", head.conv, "NCHW"))
    elif plan.final_norm:
        found.append(("norm", plan.channels, "NCHW"))
    return tuple(CutPoint(place, index, channels, axes) for index, (place, channels, axes) in enumerate(found))
