"""`Features`: a network without its head, as the maps that its stages give, for heads of another kind."""

from __future__ import annotations

from torch import Tensor, nn

from .network import Network


class Features(nn.Module):
    """x_BCHW -> a list of maps, one a stage and one of the transformer encoder's tokens, from the image on.

    It holds the network itself, so training it trains the network. The last map of the stages is normalised where the
    net has a norm there; the stem's map comes first only where there is no stage.
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
        maps = maps or [(plan.channels, plan.stem_map[0])]
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
        return maps or [x_BCHW]
