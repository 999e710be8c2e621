"""Where a net is listened to: the places of its residual stream, by name, in the order of its depth.

B batch, T tokens (the class token first, where there is one), C channels, H x W map.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor, nn

from ...archs import Network
from ...archs.blocks.spec import BLOCKS, BlockSpec
from ...archs.errors import InputError


@dataclass(frozen=True)
class HookPoint:
    """A value in a net: what a module takes or gives.

    Attributes:
        name: for people, such as "stage 2 block 3" or "encoder 4 mlp".
        module: its name in `named_modules`.
        side: "in" for the module's first argument, "out" for what it returns.
        op: what has just been added to the stream: stem, conv, msa or mlp.
        stage: "stem", "1" and so on, or "encoder".
        grid: (height, width) of the tokens, where the value is x_BTC; None for maps.
        lead: tokens before those of the grid, such as the class token.
        block: the name of the block that has just been added, in `named_modules`.
        branch: the layer of that block whose output was added; of "drop_path" the input; "" in timm's nets.
    """

    name: str
    module: str
    side: str
    op: str
    stage: str
    grid: tuple[int, int] | None = None
    lead: int = 0
    block: str = ""
    branch: str = ""


def residual_points(net: nn.Module) -> list[HookPoint]:
    """The residual stream behind the stem and behind every conv block, MSA and MLP (Park & Kim's choice).

    Takes the nets of `archs.build`, and timm's VisionTransformer and ResNet.

    Raises:
        InputError: if the net is of another kind.
    """
    if isinstance(net, Network):
        return list(_ours(net))
    kind = type(net).__name__
    if kind == "VisionTransformer":
        grid, lead = tuple(net.patch_embed.grid_size), net.num_prefix_tokens  # pyright: ignore
        return list(_tokens("blocks", net.blocks, grid, lead))  # pyright: ignore[reportArgumentType]
    if kind == "ResNet":
        return list(_timm_resnet(net))
    raise InputError(f"probe: knows the nets of alternas and timm's VisionTransformer and ResNet, got {kind}")


def stage_ends(sites: list[HookPoint]) -> list[int]:
    """Places in `sites` of the last one of each stage."""
    return [i for i, site in enumerate(sites) if i + 1 == len(sites) or sites[i + 1].stage != site.stage]


def as_map(site: HookPoint, x: Tensor) -> Tensor:
    """x_BCHW of what `site` held: tokens laid out on their grid, without the class token."""
    if site.grid is None:
        return x
    return x[:, site.lead :].transpose(1, 2).unflatten(2, site.grid)


def _ours(net: Network) -> Iterator[HookPoint]:
    if not isinstance(net.stem, nn.Identity):
        yield HookPoint("stem", "stem", "out", "stem", "stem")
    for s, stage in enumerate(net.genotype.stages):
        for b, kind in enumerate(stage.kinds):
            yield from _block(f"stages.{s}.{b}", f"stage {s + 1} block {b + 1}", str(s + 1), BLOCKS[kind])
    if net.encoder is not None:
        yield from _tokens(
            "encoder.blocks", net.encoder.blocks, net.encoder.grid, int(net.encoder.cls_token is not None)
        )


def _block(block: str, name: str, stage: str, spec: BlockSpec) -> Iterator[HookPoint]:
    for op, layer, next_norm in spec.branches:
        place = name if len(spec.branches) == 1 else f"{name} {op}"
        module, side = (f"{block}.{next_norm}", "in") if next_norm else (block, "out")
        yield HookPoint(place, module, side, op, stage, block=block, branch=layer)


def _tokens(module: str, blocks: nn.Module, grid: tuple[int, int], lead: int) -> Iterator[HookPoint]:
    yield HookPoint("encoder embedding", f"{module}.0", "in", "stem", "encoder", grid, lead)
    for i, _ in enumerate(blocks.children()):
        block, name = f"{module}.{i}", f"encoder {i + 1}"
        yield HookPoint(f"{name} msa", f"{block}.norm2", "in", "msa", "encoder", grid, lead, block, "attn")
        yield HookPoint(f"{name} mlp", block, "out", "mlp", "encoder", grid, lead, block, "mlp")


def _timm_resnet(net: nn.Module) -> Iterator[HookPoint]:
    yield HookPoint("stem", "maxpool", "out", "stem", "stem")
    for s in range(1, 5):
        for b, _ in enumerate(net.get_submodule(f"layer{s}").children()):
            block = f"layer{s}.{b}"
            yield HookPoint(f"stage {s} block {b + 1}", block, "out", "conv", str(s), block=block)
