"""`Recipe` and `Augment`: how one net is trained, as values with a JSON round trip. The recipes stand in recipes.py."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from ...archs.errors import InputError, check_choice, short_repr

SCHEDULES = ("cosine", "linear", "constant")
LOSSES = ("cross_entropy", "binary")
OPTIMIZERS = ("adamw", "adam", "sgd", "momentum", "nadamw", "rmsproptf", "lamb", "lars", "lion", "adan", "muon")
MOST_EPOCHS = 10**6
MOST_NAME = 200  # characters
# The largest value of each field that is no share, far beyond any that trains.
MOST_AUGMENT = {
    "pad": 2**12,
    "ra_num_ops": 100,
    "ra_magnitude": 10,
    "ra_magnitude_std": 100,
    "cutout": 2**12,
    "mixup": 1000,
    "cutmix": 1000,
}
MOST = {"lr": 1000, "weight_decay": 1000, "avg_pool_lr": 1000, "clip_grad": 10**9, "sam_rho": 1000}
PRECISIONS = ("auto", "float32", "bfloat16", "float16")


@dataclass(frozen=True)
class Augment:
    """What happens to a training image, in this order; what is 0 or False does not happen.

    Attributes:
        rrc_min_scale: least share of the image that a random resized crop keeps (Inception's).
        pad: random crop of the image padded by so many pixels of the mean colour.
        flip: left to right, every second image.
        ra_num_ops: RandAugment: so many operations an image (Cubuk et al., 2020; as timm's),
        ra_magnitude: of so many tenths,
        ra_magnitude_std: with noise of this standard deviation on the magnitude,
        ra_increasing: whether a larger magnitude always changes more.
        cutout: side in pixels of a square set to the mean colour (DeVries & Taylor, 2017).
        reprob: share of images with a box of noise (Zhong et al., 2017; as timm's).
        mixup: alpha of mixup (Zhang et al., 2018).
        cutmix: alpha of CutMix (Yun et al., 2019); with both, each takes half of the batches.
        mix: share of batches mixed.
    """

    rrc_min_scale: float = 0.0
    pad: int = 0
    flip: bool = False
    ra_num_ops: int = 0
    ra_magnitude: float = 0.0
    ra_magnitude_std: float = 0.0
    ra_increasing: bool = False
    cutout: int = 0
    reprob: float = 0.0
    mixup: float = 0.0
    cutmix: float = 0.0
    mix: float = 1.0

    def __post_init__(self) -> None:
        _kinds(self, "augment.")
        for name in ("rrc_min_scale", "reprob", "mix"):
            _within(f"augment.{name}", getattr(self, name), 0, 1)
        for name, most in MOST_AUGMENT.items():
            _within(f"augment.{name}", getattr(self, name), 0, most)

    @property
    def mixes(self) -> bool:
        """Whether images and labels are mixed."""
        return self.mix > 0 and (self.mixup > 0 or self.cutmix > 0)


@dataclass(frozen=True)
class Recipe:
    """How one net is trained. Shares are of the full budget, counted in optimiser steps.

    Attributes:
        name: of the function it came from.
        epochs: passes over the training images at full budget.
        batch_size: images a step.
        optimizer: by timm's name; sgd has Nesterov's momentum, momentum the plain one.
        lr: peak learning rate.
        weight_decay: on matrices and conv kernels,
        decay_all: on norms and biases as well.
        momentum: of those optimisers that have one.
        schedule: behind the warm-up: "cosine" or "linear" to 0, or "constant".
        warmup: share spent on rising linearly from 0.
        cooldown: last share of a constant schedule, in which it falls linearly to 0: every earlier
            state is then worth the same whatever the full budget (Hägele et al., 2024).
        avg_pool_lr: peak learning rate of transformers that are read by averaging tokens; 0 means `lr`.
        loss: "cross_entropy", or "binary": one yes-or-no for each class (Wightman et al., 2021).
        label_smoothing: as in cross-entropy.
        dropout, drop_path: of the net while it trains; see `archs.build`.
        clip_grad: largest gradient norm; 0 for none.
        ema_decay: decay of the averaged weights a step, reached after a ramp; 0 evaluates the plain weights.
        sam_rho: rho of sharpness-aware minimisation (Foret et al., ICLR 2021), two passes a step; 0 for none.
        grad_accum_steps: passes that a step is split into; they share one update.
        precision: "float32", "bfloat16" or "float16" (autocast); "auto" takes what the device is fast in.
        compile: whether torch.compile makes the net faster first.
        augment: of the training images.
    """

    name: str
    epochs: float
    batch_size: int
    optimizer: str
    lr: float
    weight_decay: float
    decay_all: bool = False
    momentum: float = 0.9
    schedule: str = "cosine"
    warmup: float = 0.1
    cooldown: float = 0.0
    avg_pool_lr: float = 0.0
    loss: str = "cross_entropy"
    label_smoothing: float = 0.0
    dropout: float = 0.0
    drop_path: float = 0.0
    clip_grad: float = 0.0
    ema_decay: float = 0.0
    sam_rho: float = 0.0
    grad_accum_steps: int = 1
    precision: str = "auto"
    compile: bool = False
    augment: Augment = field(default_factory=Augment)

    def __post_init__(self) -> None:
        _kinds(self, "")
        check_choice("recipe: schedule", self.schedule, SCHEDULES)
        check_choice("recipe: optimizer", self.optimizer, OPTIMIZERS)
        check_choice("recipe: loss", self.loss, LOSSES)
        check_choice("recipe: precision", self.precision, PRECISIONS)
        for name in ("batch_size", "grad_accum_steps"):
            _within(name, getattr(self, name), 1, 2**20)
        if len(self.name) > MOST_NAME:
            raise InputError(f"recipe: name must be at most {MOST_NAME} characters, got {len(self.name)}")
        _within("epochs", self.epochs, 0, MOST_EPOCHS, above=True)
        for name, most in MOST.items():
            _within(name, getattr(self, name), 0, most, above=name == "lr")
        for name in ("warmup", "cooldown", "label_smoothing", "ema_decay", "momentum"):
            _within(name, getattr(self, name), 0, 1)
        for name in ("dropout", "drop_path"):
            _within(name, getattr(self, name), 0, 0.99)
        if self.grad_accum_steps > self.batch_size or self.warmup + self.cooldown > 1:
            place = "grad_accum_steps" if self.grad_accum_steps > self.batch_size else "warmup + cooldown"
            raise InputError(f"recipe: {place} is more than there is: {self.batch_size} images, a budget of 1")

    def steps_per_epoch(self, images: int) -> int:
        """Optimiser steps in one pass over `images`; the last, smaller batch is left out."""
        return max(1, images // self.batch_size)

    def steps(self, images: int) -> int:
        """The full budget in optimiser steps."""
        return max(1, round(self.epochs * self.steps_per_epoch(images)))

    def with_epochs(self, epochs: float) -> Recipe:
        """The same recipe at another budget.

        Raises:
            InputError: if `epochs` is not a number above 0, or endless.
        """
        return replace(self, epochs=float(epochs))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Recipe:
        """Rebuild from `to_dict`; fields left out take their defaults.

        Raises:
            InputError: if a field is unknown, missing or wrong.
        """
        data = dict(_fields_of(cls, data, "recipe"))
        data["augment"] = Augment(**_fields_of(Augment, data.get("augment", {}), "recipe: augment"))
        missing = [f.name for f in fields(cls) if f.name not in data and f.name in cls._needed()]
        if missing:
            raise InputError(f"recipe: {missing[0]} is missing")
        return cls(**data)

    @classmethod
    def _needed(cls) -> tuple[str, ...]:
        return ("name", "epochs", "batch_size", "optimizer", "lr", "weight_decay")


def check_on(recipe: Recipe, peak: float, channels: int, size: tuple[int, int]) -> None:
    """Raise InputError if the recipe does not fit images of (height, width), whose white is `peak`, 0 for none."""
    how = recipe.augment
    if how.ra_num_ops and not peak:
        rule = "RandAugment needs images of whole numbers from 0 to 255"
        raise InputError(f"recipe {recipe.name}: {rule}; these are of other numbers")
    if how.ra_num_ops and channels not in (1, 3):
        raise InputError(f"recipe {recipe.name}: RandAugment needs 1 or 3 channels, these have {channels}")
    if how.pad > min(size):
        raise InputError(
            f"recipe {recipe.name}: augment.pad {how.pad} is more than a side of {size[0]}x{size[1]} images"
        )


def _fields_of(cls: type, data: Any, where: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise InputError(f"{where}: must be an object, got {short_repr(data)}")
    for name in data:
        check_choice(f"{where}: field", name, [f.name for f in fields(cls)])
    return data


def _kinds(value: Any, where: str) -> None:
    """Raise unless each field holds what its annotation says; a whole number may stand for a float."""
    allowed = {"float": (int, float), "int": (int,), "bool": (bool,), "str": (str,), "Augment": (Augment,)}
    for f in fields(value):
        given, kind = getattr(value, f.name), str(f.type)
        if not isinstance(given, allowed[kind]) or (isinstance(given, bool) and kind != "bool"):
            raise InputError(f"recipe: {where}{f.name} must be of type {kind}, got {short_repr(given)}")


def _within(name: str, value: float, least: float, most: float, above: bool = False) -> None:
    fine = (least < value if above else least <= value) and value <= most  # false of NaN
    if not fine:
        rule = f"above {least}, at most {most}" if above else f"{least} to {most}"
        raise InputError(f"recipe: {name} must be {rule}, got {short_repr(value)}")
