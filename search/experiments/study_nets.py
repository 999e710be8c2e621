"""The nets that studies compare: each family at three sizes that suit the images, and swapped-in attention."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from ...archs import Encoder, Genotype, Head, Stage, Stem, Style, zoo
from ...archs.errors import check_choice
from ...archs.layout import Map
from ...spaces.families import swapped
from ..data.dataset import DataSet
from ..data.views import WHOLE, View, seen
from ..training.recipe import Recipe
from .plan import Training

FAMILIES = ("resnet", "alternet", "hybrid", "vit")
CNNS = ("resnet", "bit")  # the first family: a plain ResNet, or BiT's, as in the ViT papers
SIZES = ("s", "m", "l")
SMALL_SIDE = 64  # px; above it, the zoo's nets
GRID = {16: 4, 64: 8}  # tokens a side of a ViT, about, by scale
TRUNKS = {  # width and depths of a first and later stages, by scale: up to 16 px, up to 64 px
    16: ((8, (1, 2, 2)), (12, (1, 2, 2)), (16, (2, 2, 2))),
    64: ((16, (2, 2, 2, 2)), (32, (2, 2, 2, 2)), (64, (2, 2, 2, 2))),
}
ENCODERS = {16: ((32, 3), (48, 4), (64, 6)), 64: ((96, 4), (192, 6), (256, 8))}  # embed_dim and depth
BIT_WIDTHS = (32, 64, 96)  # of BiT's first stage: GroupNorm has 32 groups
LARGE = {
    "resnet": ("resnet18", "resnet50", "resnet101"),
    "bit": ("bit_r50x1", "bit_r101x1", "bit_r50x3"),
    "alternet": ("alternet18", "alternet50", "alternet101"),
    "hybrid": ("vit_tiny_r_s16_p8", "vit_small_r26_s32", "vit_base_r50_s16"),
    "vit": ("vit_tiny_patch16", "vit_small_patch16", "vit_base_patch16"),
}

QUICK_STEPS = 200  # most steps of a training of a quick study
QUICK_SEEDS = 2


@dataclass(frozen=True)
class StudySetting:
    """Setting that a study's plan is made for."""

    data: DataSet
    recipe: Recipe
    seeds: int  # number of trainings of each net
    quick: bool = False  # few points and short trainings: to see that it works, not to learn from
    cnn: str = "resnet"  # family of the CNN that others are compared with, of `CNNS`

    @property
    def steps(self) -> int:
        """The full budget of a training on all of the data."""
        return self.recipe.steps(len(self.data.train))

    @property
    def shares(self) -> tuple[float, ...]:
        """The shares of the data that are compared, each in whole images a class."""
        return (0.1, 1.0) if self.quick else (0.03, 0.1, 0.3, 1.0)

    @property
    def families(self) -> tuple[str, ...]:
        return self.cnn, *FAMILIES[1:]

    @property
    def sizes(self) -> tuple[str, ...]:
        return SIZES[:2] if self.quick else SIZES

    def quickened(self) -> StudySetting:
        """The setting of a quick study: short trainings, two seeds at most."""
        epochs = self.recipe.epochs * min(1.0, QUICK_STEPS / self.steps)
        return replace(self, recipe=self.recipe.with_epochs(epochs), seeds=min(self.seeds, QUICK_SEEDS), quick=True)

    def net(self, family: str, size: str) -> Genotype:
        return net_of(family, size, self.data.image_size)

    @property
    def encoder(self) -> Encoder:
        """The encoder of the medium ViT."""
        encoder = self.net("vit", "m").encoder
        assert encoder is not None
        return encoder

    def vit(self, **changes: Any) -> Genotype:
        """The medium ViT with another encoder."""
        return replace(self.net("vit", "m"), encoder=replace(self.encoder, **changes))

    def repeated(self, net: Genotype, factors: dict[str, Any], **changes: Any) -> Iterator[Training]:
        """One training a seed."""
        for seed in range(self.seeds):
            yield self.training(net, seed, factors, **changes)

    def training(
        self,
        net: Genotype,
        seed: int,
        factors: dict[str, Any],
        share: float = 1.0,
        classes: tuple[int, ...] = (),
        **changes: Any,
    ) -> Training:
        """A training on a share of the data, drawn by the seed, for as many steps as on all of them."""
        view = View(share, classes, seed) if share < 1 or classes else WHOLE
        config = {"recipe": self.recipe, "steps": self.steps, "view": view} | changes
        config["recipe"] = config["recipe"].on(len(seen(self.data, view).train))
        return Training(net, seed=seed, factors=factors, **config)


def net_of(family: str, size: str, image: Map) -> Genotype:
    """The net of a family (of `FAMILIES` or `CNNS`) and size ("s", "m", "l") for images of `image` px.

    "bit" is the ResNet with GroupNorm and weight-standardised convs (Kolesnikov et al., ECCV 2020). InputError if
    family or size is unknown.
    """
    number = SIZES.index(check_choice("size", size, SIZES))
    check_choice("family", family, (*FAMILIES, *CNNS))
    if max(image) > SMALL_SIDE:
        return zoo.get(LARGE[family][number], image)
    scale = 16 if max(image) <= 16 else 64
    embed_dim, depth = ENCODERS[scale][number]
    if family == "vit":
        patch = _patch(image, GRID[scale])
        return Genotype(Stem("none"), (), Encoder(embed_dim, depth, embed_dim // 16, patch=patch), Head("token"))
    width, depths = TRUNKS[scale][number]
    style = Style("pre", "group") if family == "bit" else Style()
    width = BIT_WIDTHS[number] if family == "bit" else width
    stages = tuple(Stage("basic", blocks, width * 2**i, 1 if i == 0 else 2) for i, blocks in enumerate(depths))
    trunk = Genotype(Stem("cifar", width), stages, style=style)
    if family == "alternet":
        return swapped(trunk, (0, *(1 for _ in stages[1:])), image)
    if family == "hybrid":  # an encoder takes the place of the last stage
        return Genotype(
            trunk.stem, stages[:-1], Encoder(embed_dim, max(1, depth // 2), embed_dim // 16, patch=1), Head("token")
        )
    return trunk


def with_grid(net: Genotype, image: Map, tokens: int) -> Genotype:
    """The ViT `net` with about `tokens` x `tokens` patches."""
    assert net.encoder is not None
    return replace(net, encoder=replace(net.encoder, patch=_patch(image, tokens)))


def _patch(image: Map, tokens: int) -> int:
    """The largest patch that leaves at least `tokens` a side and divides the image."""
    side = max(1, min(image) // tokens)
    return next(p for p in range(side, 0, -1) if image[0] % p == 0 and image[1] % p == 0)
