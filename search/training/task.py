"""Training tasks: classification, several labels a picture, masked patch prediction; the loss of a recipe.

Masked patch prediction (Dosovitskiy et al., ICLR 2021, appendix B.1.2): an encoder learns the colours of patches it
cannot see. Half of the patch embeddings are corrupted. Of those, 80 % become a learnt [mask] embedding, 10 % that of
a random other patch, 10 % stay as they are; from the output token of each a linear layer tells the patch's mean
colour in 3 bits a channel.

B batch, N patches of an image, A = B * N all patches of the batch, M those corrupted, K classes or colours.
"""

from collections.abc import Callable
from typing import Any, cast

import numpy as np
import torch
import torch.nn.functional as F
from torch import Generator, Tensor, nn

from ...archs import InputError, Network
from ...archs.errors import check_choice
from ...archs.timm_network import AnyNetwork
from ...results.metrics import LabelScores, Scores, label_scores, scores
from ..data.dataset import DataSet
from .recipe import Recipe

MASKED, REPLACED, RANDOM = 0.5, 0.8, 0.1  # corrupted patches; of those, masked and of another patch
LEVELS = 8  # of a channel: 3 bits
MOST_CHANNELS = 3
BORDER = 1e-4  # of a level: what float32 may lose; a colour on the border has the upper level on every device

Channels = tuple[float, ...]  # a number a channel
Forward = Callable[[Tensor], Any]  # of a module that `Task.wrap` made, perhaps compiled


class Task:
    """Classification. Other tasks may train a larger module around the net, which is thrown away."""

    draws_on_device = True  # whether nothing random comes from the CPU as the net trains
    has_classes = True  # whether the net's logits are of classes, one a picture

    def __init__(self, recipe: Recipe, data: DataSet) -> None:
        self.recipe, self.data, self.num_answers = recipe, data, len(data.classes)
        self.weight_K = class_weights(recipe, data.train.y_N, len(data.classes))

    def wrap(self, network: AnyNetwork) -> nn.Module:
        """The module to train."""
        return network

    def unwrap(self, module: nn.Module) -> Network:
        """The network inside a module that `wrap` made."""
        return cast(Network, module)

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Mean loss of a batch; called under autocast."""
        if self.weight_K is not None:
            self.weight_K = self.weight_K.to(x_BCHW.device)  # which waits for the device the first time
        return loss_of(self.recipe, forward(x_BCHW).float(), target, self.weight_K)

    def predict(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        """(logits, true answers) of a batch."""
        return forward(x_BCHW), y_B

    def scores(self, logits: Tensor, answers: Tensor) -> Scores | LabelScores:
        """How good all that was predicted is."""
        return scores(logits, answers, self.num_answers)


class LabelsTask(Task):
    """Several labels a picture, y (B, K): a yes-or-no for each."""

    has_classes = False

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        """Mean binary cross-entropy; label smoothing goes towards one half."""
        smoothing = self.recipe.label_smoothing
        t_BK = target.float() * (1 - smoothing) + smoothing / 2
        return F.binary_cross_entropy_with_logits(forward(x_BCHW).float(), t_BK)

    def scores(self, logits: Tensor, answers: Tensor) -> LabelScores:
        return label_scores(logits, answers)


class MaskedPatchTask(Task):
    """Masked patch prediction; labels are not looked at."""

    draws_on_device = False
    has_classes = False

    def __init__(self, recipe: Recipe, data: DataSet) -> None:
        super().__init__(recipe, data)
        self.num_answers = LEVELS**data.in_chans

    def wrap(self, network: AnyNetwork) -> nn.Module:
        if not isinstance(network, Network):
            raise InputError("masked patches need the tokens of our encoder, which timm's nets do not have")
        return MaskedPatches(network, *black_and_white(self.data.mean, self.data.std, self.data.white_level))

    def unwrap(self, module: nn.Module) -> Network:
        return cast(MaskedPatches, module).network

    def loss(self, forward: Forward, x_BCHW: Tensor, target: Tensor) -> Tensor:
        return masked_loss(forward, x_BCHW)

    def predict(self, forward: Forward, x_BCHW: Tensor, y_B: Tensor) -> tuple[Tensor, Tensor]:
        return forward(x_BCHW)

    def scores(self, logits: Tensor, answers: Tensor) -> Scores:
        return scores(logits, answers, self.num_answers, with_auroc=False)  # of hundreds of colours it takes long


TASKS = {"classes": Task, "patches": MaskedPatchTask}


def task_of(name: str, recipe: Recipe, data: DataSet) -> Task:
    """The task of that name; classes are labels where pictures have several; InputError if the name is unknown."""
    task = TASKS[check_choice("task", name, TASKS)]
    return (LabelsTask if task is Task and data.several_labels else task)(recipe, data)


def black_and_white(mean: Channels, std: Channels, white_level: float) -> tuple[Channels, Channels]:
    """Black and white by channel, normalised; without a white level, mean - 2 std and mean + 2 std."""
    if not white_level:
        return (-2.0,) * len(mean), (2.0,) * len(mean)
    pairs = tuple(zip(mean, std, strict=True))
    return tuple(-mean / std for mean, std in pairs), tuple((white_level - mean) / std for mean, std in pairs)


class MaskedPatches(nn.Module):
    """x_BCHW, normalised -> (logits_MK, colour_M): predictions for the M corrupted patches, and their true colours.

    M depends on the batch's shape alone. In training the draws are from torch's global random state on
    the CPU; in eval mode they are the same each time. The net's head is not used, so its gradients stay
    None: optimisers, gradient clipping and GradScaler pass over such parameters, and leave them as they
    are, undecayed.

    `network`: a net with an encoder; its weights are what is kept. `black`, `white`: of the images it will see, by
    channel, normalised. Raises InputError if the net has no encoder, too many channels, or a single patch.
    """

    black_C11: Tensor
    span_C11: Tensor  # from black to white

    def __init__(self, network: Network, black: Channels, white: Channels) -> None:
        super().__init__()
        encoder, channels = network.encoder, network.in_chans
        assert len(black) == len(white) == channels
        if encoder is None:
            raise InputError(f"masked patches need tokens: net of family {network.genotype.family} has no encoder")
        if channels > MOST_CHANNELS:
            raise InputError(
                f"masked patches: colours have at most {MOST_CHANNELS} channels, {LEVELS} levels each: "
                f"got {channels} channels, {LEVELS**channels} colours"
            )
        if encoder.grid[0] * encoder.grid[1] < 2:
            raise InputError("masked patches: need at least 2 tokens, to corrupt some and see others, got 1")
        self.network, self.colours, dim = network, LEVELS**channels, encoder.spec.embed_dim
        self.mask = nn.Parameter(nn.init.trunc_normal_(torch.empty(dim), std=0.02))
        self.predict = nn.Linear(dim, self.colours)
        nn.init.trunc_normal_(self.predict.weight, std=0.02)  # as all Linears of the encoder
        nn.init.zeros_(self.predict.bias)
        black_C, white_C = torch.tensor(black), torch.tensor(white)
        self.register_buffer("black_C11", black_C[:, None, None], persistent=False)
        self.register_buffer("span_C11", (white_C - black_C)[:, None, None], persistent=False)

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
        share_BCHW = (mean_BCHW - self.black_C11) / self.span_C11  # from black 0 to white 1
        level_BCN = (share_BCHW * LEVELS + BORDER).floor().clamp(0, LEVELS - 1).long().flatten(2)
        colour_BN = level_BCN[:, 0]
        for channel in range(1, level_BCN.shape[1]):
            colour_BN = colour_BN * LEVELS + level_BCN[:, channel]
        return colour_BN


def masked_loss(forward: Forward, x_BCHW: Tensor) -> Tensor:
    """Mean cross-entropy of the corrupted patches' colours, in float32; the caller chooses autocast."""
    logits_MK, colour_M = forward(x_BCHW)
    return F.cross_entropy(logits_MK.float(), colour_M)


@torch.compiler.disable  # so that a compiled net has the draws of one that is not
def _drawn(x_BNC: Tensor, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """What is corrupted of these patches: drawn on the CPU, moved to their device without waiting.

    Returns at_M: the corrupted patches' places among all A, image by image, round(MASKED * N) of each. source_BN: the
    place among all A of the patch whose embedding each patch gets; mostly its own. masked_BN: whether it gets the
    [mask] embedding instead.
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


def class_weights(recipe: Recipe, y_N: np.ndarray, classes: int) -> Tensor | None:
    """(K,) what the loss of an image of each class is multiplied by; 0 of classes without images; None where all is 1.

    As scikit-learn's `compute_class_weight("balanced")` (King & Zeng, Political Analysis 9, 2001).
    """
    if recipe.class_weights == "none":
        return None
    count_K = np.bincount(y_N, minlength=classes)
    shares_K = np.count_nonzero(count_K) * count_K / len(y_N)
    return torch.tensor([1 / share if share else 0.0 for share in shares_K.tolist()])


def loss_of(recipe: Recipe, logits_BK: Tensor, target: Tensor, weight_K: Tensor | None = None) -> Tensor:
    """Mean loss; `target` as labels (B) or shares of the classes (B, K).

    With weights the loss of each image is multiplied by that of its class, of a mixed one by their mean. The mean is
    over the images, not over the weights: a batch in several passes has the gradient of the whole.
    """
    if weight_K is None:
        return _losses(recipe, logits_BK, target, "mean")
    weight_B = (target if target.ndim == 2 else F.one_hot(target, logits_BK.shape[1])).to(weight_K) @ weight_K
    return (weight_B * _losses(recipe, logits_BK, target, "none").view(len(target), -1).mean(1)).mean()


def _losses(recipe: Recipe, logits_BK: Tensor, target: Tensor, reduction: str) -> Tensor:
    """Mean loss, or without reduction loss_B of images, loss_BK of yes-or-no answers."""
    if recipe.loss == "cross_entropy":
        return F.cross_entropy(logits_BK, target, label_smoothing=recipe.label_smoothing, reduction=reduction)
    exact = torch.promote_types(logits_BK.dtype, torch.float32)  # float64 in analyses, which a float32 would spoil
    t_BK = target if target.ndim == 2 else F.one_hot(target, logits_BK.shape[1]).to(exact)
    t_BK = t_BK * (1 - recipe.label_smoothing) + recipe.label_smoothing / logits_BK.shape[1]
    return F.binary_cross_entropy_with_logits(logits_BK, t_BK, reduction=reduction)
