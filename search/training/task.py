"""Masked patch prediction: an encoder learns without labels, from the colours of patches it cannot see.

Dosovitskiy et al., ICLR 2021, appendix B.1.2: half of the patch embeddings are corrupted. Of those,
80 % become a learnt [mask] embedding, 10 % that of a random other patch, 10 % stay as they are; from
the output token of each a linear layer tells the patch's mean colour in 3 bits a channel.

B batch, N patches of an image, A = B * N all patches of the batch, M those corrupted, K colours.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ...archs import InputError, Network
from ...archs.errors import check_choice
from ..data.dataset import DataSet
from .optim import loss_of
from .recipe import Recipe

MASKED, REPLACED, RANDOM = 0.5, 0.8, 0.1  # corrupted patches; of those, masked and of another patch
LEVELS = 8  # of a channel: 3 bits
MOST_CHANNELS = 3
BORDER = 1e-4  # of a level: what float32 may lose; a colour on the border has the upper level on every device


@dataclass(frozen=True)
class ColourScale:
    """What normalised values stand for.

    Attributes:
        mean, std: by channel, in raw values.
        peak: the raw value of white, 0 where there is none.
    """

    mean: tuple[float, ...]
    std: tuple[float, ...]
    peak: float

    @classmethod
    def of(cls, data: DataSet) -> ColourScale:
        """The scale of a data set's images."""
        return cls(data.mean, data.std, data.white_level)

    def ends(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Black and white by channel, normalised; without a white, mean - 2 std and mean + 2 std."""
        if not self.peak:
            return (-2.0,) * len(self.mean), (2.0,) * len(self.mean)
        both = tuple(zip(self.mean, self.std, strict=True))
        return tuple(-mean / std for mean, std in both), tuple((self.peak - mean) / std for mean, std in both)


class MaskedPatches(nn.Module):
    """x_BCHW, normalised -> (logits_MK, colour_M): predictions for the M corrupted patches, and their true colours.

    M depends on the batch's shape alone. In training the draws are from torch's global random state on
    the CPU; in eval mode they are the same each time. The net's head is not used, so its gradients stay
    None: optimisers, gradient clipping and GradScaler pass over such parameters, and leave them as they
    are, undecayed.

    Args:
        network: a net with an encoder.
        level: of the images it will see.

    Attributes:
        network: the net; its weights are what is kept.
        colours: K.

    Raises:
        InputError: if the net has no encoder, too many channels, or a single patch.
    """

    low_C11: Tensor  # black, and what lies between it and white; normalised
    span_C11: Tensor

    def __init__(self, network: Network, level: ColourScale) -> None:
        super().__init__()
        _check(network)
        assert network.encoder is not None
        assert len(level.mean) == network.in_chans
        self.network, self.colours = network, LEVELS**network.in_chans
        dim = network.encoder.spec.embed_dim
        self.mask = nn.Parameter(nn.init.trunc_normal_(torch.empty(dim), std=0.02))
        self.predict = nn.Linear(dim, self.colours)
        nn.init.trunc_normal_(self.predict.weight, std=0.02)  # as all Linears of the encoder
        nn.init.zeros_(self.predict.bias)
        low_C, high_C = (torch.tensor(end) for end in level.ends())
        self.register_buffer("low_C11", low_C[:, None, None], persistent=False)
        self.register_buffer("span_C11", (high_C - low_C)[:, None, None], persistent=False)

    def forward(self, x_BCHW: Tensor) -> tuple[Tensor, Tensor]:
        encoder = self.network.encoder
        assert encoder is not None
        map_BCHW = self.network.forward_features(x_BCHW)
        grid = encoder.grid_of(map_BCHW)
        x_BNC = encoder.embed(map_BCHW)
        at_M, source_BN, masked_BN = _drawn(x_BNC, self.training)  # pyright: ignore[reportCallIssue]
        shuffled_BNC = x_BNC.flatten(0, 1)[source_BN]
        corrupted_BNC = torch.where(masked_BN[:, :, None], self.mask.to(x_BNC.dtype), shuffled_BNC)
        y_BNC = encoder.encode(corrupted_BNC, grid)[:, -x_BNC.shape[1] :]  # without the class token
        return self.predict(y_BNC.flatten(0, 1)[at_M]), self.colours_of(x_BCHW, grid).flatten()[at_M]

    def colours_of(self, x_BCHW: Tensor, grid: tuple[int, int]) -> Tensor:
        """colour_BN: the mean colour of the image's region of each token, first channel most significant."""
        mean_BCHW = F.adaptive_avg_pool2d(x_BCHW.float(), grid)
        share_BCHW = (mean_BCHW - self.low_C11) / self.span_C11  # from black 0 to white 1
        level_BCN = (share_BCHW * LEVELS + BORDER).floor().clamp(0, LEVELS - 1).long().flatten(2)
        colour_BN = level_BCN[:, 0]
        for channel in range(1, level_BCN.shape[1]):
            colour_BN = colour_BN * LEVELS + level_BCN[:, channel]
        return colour_BN


def masked_loss(forward: Callable[[Tensor], tuple[Tensor, Tensor]], x_BCHW: Tensor) -> Tensor:
    """Mean cross-entropy of the corrupted patches' colours, in float32; the caller chooses autocast.

    Args:
        forward: a `MaskedPatches`, compiled or not.
        x_BCHW: normalised images.
    """
    logits_MK, colour_M = forward(x_BCHW)
    return F.cross_entropy(logits_MK.float(), colour_M)


@torch.compiler.disable  # so that a compiled net has the draws of one that is not
def _drawn(x_BNC: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """What is corrupted of these patches: drawn on the CPU, moved to their device without waiting.

    Returns:
        at_M: the corrupted patches' places among all A, image by image, round(MASKED * N) of each.
        source_BN: the place among all A of the patch whose embedding each patch gets; mostly its own.
        masked_BN: whether it gets the [mask] embedding instead.
    """
    (batch, patches), total = x_BNC.shape[:2], x_BNC.shape[0] * x_BNC.shape[1]
    generator = None if training else Generator().manual_seed(0)
    order_BN = torch.rand(batch, patches, generator=generator).argsort(dim=1)
    first_B1 = torch.arange(batch)[:, None] * patches
    at_M = (first_B1 + order_BN[:, : round(MASKED * patches)]).flatten()
    fate_M = torch.rand(len(at_M), generator=generator)
    other_M = (at_M + torch.randint(1, total, at_M.shape, generator=generator)) % total  # never itself
    source_A, masked_A = torch.arange(total), torch.zeros(total, dtype=torch.bool)
    source_A[at_M] = torch.where((fate_M >= REPLACED) & (fate_M < REPLACED + RANDOM), other_M, at_M)
    masked_A[at_M] = fate_M < REPLACED
    drawn = at_M, source_A.view(batch, patches), masked_A.view(batch, patches)
    at_M, source_BN, masked_BN = (tensor.to(x_BNC.device, non_blocking=True) for tensor in drawn)
    return at_M, source_BN, masked_BN


def _check(network: Network) -> None:
    """Raise InputError if patches of this net cannot be masked and told."""
    encoder, channels = network.encoder, network.in_chans
    if encoder is None:
        raise InputError(f"masked patches need tokens: net of family {network.genotype.family} has no encoder")
    if channels > MOST_CHANNELS:
        raise InputError(
            f"masked patches: colours have at most {MOST_CHANNELS} channels, {LEVELS} levels each: "
            f"got {channels} channels, {LEVELS**channels} colours"
        )
    if encoder.grid[0] * encoder.grid[1] < 2:
        raise InputError("masked patches: need at least 2 tokens, to corrupt some and see others, got 1")


Forward = Callable[[Tensor], Any]  # of a module that `dress` made
TASKS = ("classes", "patches")


class Task(Protocol):
    """One way of training a `Network`, perhaps inside a larger module that is thrown away."""

    kinds: int  # of answers

    def dress(self, network: Network) -> nn.Module:
        """The module to train."""
        ...

    def kept(self, module: nn.Module) -> Network:
        """The network inside a module that `dress` made."""
        ...

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Mean loss of a batch; called under autocast."""
        ...

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, true answers) of a batch."""
        ...


class Classes:
    """Tell the classes apart."""

    def __init__(self, recipe: Recipe, data: DataSet) -> None:
        self.recipe, self.kinds = recipe, len(data.classes)

    def dress(self, network: Network) -> nn.Module:
        return network

    def kept(self, module: nn.Module) -> Network:
        return cast(Network, module)

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        return loss_of(self.recipe, forward(x_BCHW).float(), target)

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        return forward(x_BCHW), y_B


class Patches:
    """Predict the mean colours of hidden patches; labels are not looked at."""

    def __init__(self, data: DataSet) -> None:
        self.scale = ColourScale.of(data)
        self.kinds = LEVELS**data.in_chans

    def dress(self, network: Network) -> nn.Module:
        return MaskedPatches(network, self.scale)

    def kept(self, module: nn.Module) -> Network:
        return cast(MaskedPatches, module).network

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        return masked_loss(forward, x_BCHW)

    def answers(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        logits_MK, colour_M = forward(x_BCHW)
        return logits_MK, colour_M


def task_of(name: str, recipe: Recipe, data: DataSet) -> Task:
    """The task of that name.

    Raises:
        InputError: if the name is unknown.
    """
    return Patches(data) if check_choice("task", name, TASKS) == "patches" else Classes(recipe, data)
