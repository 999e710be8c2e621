"""`build`: from a genotype to an `nn.Module`; `resized`: at another image size; `Features`: its maps, headless."""

from collections.abc import Sequence
from importlib import import_module
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .blocks.encoder import TransformerEncoder
from .blocks.layers import act, conv_norm
from .ends import last_norm, make_head, make_stem
from .errors import InputError, check_int
from .genotype import Genotype
from .layout import ImageSize, Map
from .parts import MAX_CLASSES


def load_class(name: str) -> Any:
    """The class that "package.module:Class" names; ".module:Class" is among the blocks."""
    module, _, attribute = name.partition(":")
    return getattr(import_module(module, f"{__package__}.blocks"), attribute)


class Network(nn.Module):
    """x_BCHW -> logits (B, num_classes): stem, stages of residual blocks, last norm, transformer encoder, head.

    Made by `build`. Images of another size than built for pass where the net allows it: every window must divide its
    map; a window over the whole map and position embeddings need the map they were built for (see `resized`).
    """

    def __init__(
        self, genotype: Genotype, num_classes: int, image_size: ImageSize, in_chans: int, dropout: float
    ) -> None:
        super().__init__()
        plan, encoder = genotype.plan(image_size, in_chans), genotype.encoder
        self.genotype, self.num_classes, self.image_size, self.in_chans = genotype, num_classes, plan.image, in_chans
        self.stem, head = make_stem(genotype.stem, genotype.style, in_chans), genotype.head
        self.stages = nn.ModuleList(
            nn.Sequential(*(load_class(b.form.module)(b) for b in stage)) for stage in plan.stages
        )
        self.norm = last_norm(plan, genotype.style)
        self.encoder = None
        if encoder is not None:
            assert plan.grid is not None
            self.encoder = TransformerEncoder(encoder, plan.channels, plan.grid, head.pool == "token", dropout)
        self.last_conv = nn.Sequential(*conv_norm(plan.channels, head.conv, 1), act(head.act)) if head.conv else None
        features = plan.channels if encoder is None else encoder.embed_dim
        self.head = make_head(head, head.conv or features, num_classes)

    def forward_features(self, x_BCHW: Tensor) -> Tensor:
        """The last map x_BCHW, normalised, that the pooling or the encoder sees."""
        x_BCHW = self.stem(x_BCHW)
        for stage in self.stages:
            for block in stage.children():  # a call of `stage` would hold its input to its end
                x_BCHW = block(x_BCHW)
        return self.normed(x_BCHW)

    def normed(self, x_BCHW: Tensor) -> Tensor:
        """The last map of the stages as the pooling or the encoder takes it."""
        if self.norm is not None:
            x_BCHW = F.relu(self.norm(x_BCHW))
        return x_BCHW if self.last_conv is None else self.last_conv(x_BCHW)

    def forward_intermediates(self, x_BCHW: Tensor, indices: Sequence[int] | None = None, **_: Any) -> list[Tensor]:
        """Maps x_BCHW after each block, at last the one that the head pools; some of them by their numbers.

        This and the next have the names and arguments of timm's nets, as far as cuts use them (archs/timm/cuts.py).
        """
        maps, x_BCHW = list[Tensor](), self.stem(x_BCHW)
        for stage in self.stages:
            for block in stage.children():
                x_BCHW = block(x_BCHW)
                maps.append(x_BCHW)
        if self.encoder is not None:
            maps += self.encoder.maps(self.normed(x_BCHW))
        elif self.norm is not None or self.last_conv is not None:
            maps.append(self.normed(x_BCHW))
        return maps if indices is None else [maps[index] for index in indices]

    def prune_intermediate_layers(self, indices: Sequence[int], **_: Any) -> None:
        """Drop, in place, the head and all that the map with the largest of these numbers does not need."""
        keep, self.head = max(indices) + 1, nn.Identity()
        for stage in self.stages:
            blocks = len(list(stage.children()))
            del stage[keep:]  # pyright: ignore[reportIndexIssue] - a Sequential
            keep = max(0, keep - blocks)
        if keep == 0:
            self.norm = self.last_conv = self.encoder = None
        elif self.encoder is not None:
            self.encoder.prune(keep)

    @property
    def classifier(self) -> nn.Linear:
        """The linear layer that makes the logits."""
        return [module for module in self.head.modules() if isinstance(module, nn.Linear)][-1]

    def set_drop_path(self, rate: float) -> None:
        """Stochastic depth: dropped with probability 0 in the first residual block, `rate` in the last one."""
        from timm.layers.drop import DropPath

        blocks: list[Any] = [module for module in self.modules() if hasattr(module, "drop_path")]
        for i, block in enumerate(blocks):
            block.drop_path = DropPath(rate * i / max(1, len(blocks) - 1))

    def forward(self, x_BCHW: Tensor) -> Tensor:
        x_BCHW = self.forward_features(x_BCHW)
        z_BC = x_BCHW.mean(dim=(2, 3)) if self.encoder is None else self.encoder(x_BCHW)
        return self.head(z_BC)


def build(
    genotype: Genotype,
    num_classes: int,
    image_size: ImageSize,
    in_chans: int = 3,
    dropout: float = 0.0,
    drop_path: float = 0.0,
) -> Network:
    """Build the net for a side in pixels, or (height, width), with fresh weights from torch's global random state.

    `dropout`, of a transformer encoder as in the ViT paper, and `drop_path` belong to a training: neither is part of
    the genotype. `drop_path` is that of the last residual block and grows linearly from 0 (Huang et al., ECCV 2016;
    Park & Kim's code counts blocks over all stages, as here). InputError if the net cannot be built so.
    """
    for name, rate in (("dropout", dropout), ("drop_path", drop_path)):
        if isinstance(rate, bool) or not isinstance(rate, int | float) or not 0 <= rate < 1:
            raise InputError(f"build: {name} must be at least 0 and below 1, got {rate!r}")
    check_int("head", "num_classes", num_classes, 1, MAX_CLASSES)
    network = Network(genotype, num_classes, image_size, in_chans, dropout)
    if drop_path:
        network.set_drop_path(drop_path)
    return network


def resized(network: Network, image_size: ImageSize, drop_path: float = 0.0) -> Network:
    """`network` built anew for `image_size` from its weights, with its device, dtype, mode and frozen parameters.

    Position embeddings are interpolated by their place in the image (Dosovitskiy et al., ICLR 2021, section 3.2), and
    so are the tables of windows. InputError if the net cannot be built so, or has relative positions in its encoder:
    their 1-D offsets mean other distances on another grid.
    """
    net = network.genotype
    new = build(net, network.num_classes, image_size, network.in_chans, drop_path=drop_path)
    old_grid, new_grid = (net.plan(size).grid for size in (network.image_size, image_size))
    state = network.state_dict()
    for name, target in new.state_dict().items():
        if name.startswith("encoder.positions.") and old_grid and new_grid and old_grid != new_grid:
            state[name] = position_table(name, state[name], old_grid, new_grid, net.head.pool == "token")
        elif name.endswith("attn.table"):
            state[name] = interpolated(state[name], (target.shape[-2], target.shape[-1]))
    new.load_state_dict(state)
    for old, moved in zip(network.parameters(), new.parameters(), strict=True):
        moved.requires_grad_(old.requires_grad)
    first = next(network.parameters())
    return new.to(first.device, first.dtype).train(network.training)


def position_table(name: str, table: Tensor, old: Map, new: Map, token: bool) -> Tensor:
    if name.endswith((".rows", ".columns")):
        side = new[0] if name.endswith(".rows") else new[1]
        return interpolated(table, (side, table.shape[1]))
    if table.dim() != 3:
        sizes = f"{old[0]}x{old[1]} to {new[0]}x{new[1]} tokens"
        raise InputError(f"encoder: relative positions do not carry over from {sizes}: their offsets are 1-D")
    from timm.layers.pos_embed import resample_abs_pos_embed  # bicubic, antialiased

    return resample_abs_pos_embed(table, list(new), list(old), num_prefix_tokens=int(token))


def interpolated(table: Tensor, shape: tuple[int, int]) -> Tensor:
    """(..., H, W) to `shape`, bicubic."""
    if tuple(table.shape[-2:]) == shape:
        return table
    planes = table.detach().float().reshape(1, -1, *table.shape[-2:])
    moved = F.interpolate(planes, shape, mode="bicubic", antialias=True, align_corners=False)
    return moved.reshape(*table.shape[:-2], *shape).to(table.dtype)


class Features(nn.Module):
    """x_BCHW -> a list of maps, one a stage and one of the transformer encoder's tokens, from the image on.

    It holds the network itself, so training it trains the network. The last map of the stages is normalised where the
    net has a norm there.
    `channels` and `strides` are of each map: pixels of the image's height to one of the map, upwards.
    """

    def __init__(self, network: Network) -> None:
        super().__init__()
        self.network = network
        plan, encoder = network.genotype.plan(network.image_size, network.in_chans), network.genotype.encoder
        maps = [(stage[-1].c_out, stage[-1].map_out[0]) for stage in plan.stages]
        if maps and network.genotype.head.conv:
            maps[-1] = (network.genotype.head.conv, maps[-1][1])
        if encoder is not None and plan.grid is not None:
            maps.append((encoder.embed_dim, plan.grid[0]))
        self.channels = tuple(channels for channels, _ in maps)
        self.strides = tuple(-(-plan.image[0] // height) for _, height in maps)

    def forward(self, x_BCHW: Tensor) -> list[Tensor]:
        network, maps = self.network, list[Tensor]()
        x_BCHW = network.stem(x_BCHW)
        for stage in network.stages:
            x_BCHW = stage(x_BCHW)
            maps.append(x_BCHW)
        if maps:
            x_BCHW = maps[-1] = network.normed(x_BCHW)
        if (encoder := network.encoder) is not None:
            grid = encoder.grid_of(x_BCHW)
            x_BTC = encoder.encode(encoder.embed(x_BCHW), grid)
            x_BNC = x_BTC[:, -grid[0] * grid[1] :]  # without the class token
            maps.append(x_BNC.transpose(1, 2).unflatten(2, grid))
        return maps
