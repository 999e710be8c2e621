"""`Recipe` and `Augment`: how one net is trained, as values with a JSON round trip. recipes.py has the recipes."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any

from msgspec import Meta

from ...archs.errors import InputError, check_choice
from ...archs.json_files import Share, check_fields, convert

CHOICES = {
    "schedule": ("cosine", "linear", "constant", "steps"),
    "optimizer": ("adamw", "adam", "sgd", "momentum", "nadamw", "rmsproptf", "lamb", "lars", "lion", "adan", "muon"),
    "loss": ("cross_entropy", "binary"),
    "class_weights": ("none", "balanced"),
    "precision": ("auto", "float32", "bfloat16", "float16"),
}
OPTIMIZERS = CHOICES["optimizer"]
MOST_NAME = 200  # characters
LEAST_PASS = 2  # images of a pass on each device: BatchNorm cannot train on one

# Bounds of what is no share lie far beyond anything that trains.
Images = Annotated[int, Meta(ge=1, le=2**20)]
Pixels = Annotated[int, Meta(ge=0, le=2**12)]
Rate = Annotated[float, Meta(ge=0, le=1000)]
Dropped = Annotated[float, Meta(ge=0, le=0.99)]


@dataclass(frozen=True)
class Augment:
    """What happens to a training image, in this order; what is 0 or False does not happen."""

    rrc_min_scale: Share = 0.0  # least share of the image that a random resized crop keeps (Inception's)
    pad: Pixels = 0  # random crop of the image padded by so many pixels of the mean colour
    flip: bool = False  # left to right, every second image
    # RandAugment's operations an image (Cubuk et al., 2020; as timm's)
    ra_num_ops: Annotated[int, Meta(ge=0, le=100)] = 0
    ra_magnitude: Annotated[float, Meta(ge=0, le=10)] = 0.0  # how strong they are, 0 to 10
    ra_magnitude_std: Annotated[float, Meta(ge=0, le=100)] = 0.0  # standard deviation of the noise on that
    ra_increasing: bool = False  # whether a larger magnitude always changes more
    reprob: Share = 0.0  # share of images with a box of noise, random erasing (Zhong et al., 2017; as timm's)
    mixup: Rate = 0.0  # alpha of mixup (Zhang et al., 2018)
    cutmix: Rate = 0.0  # alpha of CutMix (Yun et al., 2019); with both, each takes half of the batches
    mix: Share = 1.0  # share of batches mixed

    def __post_init__(self) -> None:
        check_fields(self, "recipe: augment")

    @property
    def any(self) -> bool:
        """Whether anything happens at all."""
        sizes = (self.rrc_min_scale, self.pad, self.flip, self.ra_num_ops, self.reprob)
        return any(sizes) or self.mixes

    @property
    def changes_pixels(self) -> bool:
        """Whether images are more than moved and mirrored, before they are mixed."""
        return any((self.rrc_min_scale, self.ra_num_ops, self.reprob))

    @property
    def mixes(self) -> bool:
        """Whether images and labels are mixed."""
        return self.mix > 0 and (self.mixup > 0 or self.cutmix > 0)


@dataclass(frozen=True)
class Recipe:
    """How one net is trained. Shares are of the full budget, counted in optimizer steps."""

    name: Annotated[str, Meta(max_length=MOST_NAME)]  # of the function it came from
    epochs: Annotated[float, Meta(gt=0, le=10**6)]  # passes over the training images at full budget
    batch_size: Images  # images a step
    optimizer: str  # by timm's name; sgd has Nesterov's momentum, momentum the plain one
    lr: Annotated[float, Meta(gt=0, le=1000)]  # peak learning rate
    weight_decay: Rate  # on matrices and conv kernels
    decay_all: bool = False  # on norms and biases as well
    momentum: Share = 0.9  # of those optimizers that have one
    # behind the warm-up: "cosine" or "linear" to 0, "constant", or "steps": a tenth of the rate from 30 % of the budget
    # on, a hundredth from 60 %, a thousandth from 90 %
    schedule: str = "cosine"
    warmup: Share = 0.1  # share spent on rising linearly from 0
    # last share of a constant schedule, in which it falls linearly to 0: every earlier state is then worth the same
    # whatever the full budget (Hägele et al., 2024)
    cooldown: Share = 0.0
    avg_pool_lr: Rate = 0.0  # peak learning rate of transformers that are read by averaging tokens; 0 means `lr`
    # "cross_entropy", or "binary": one yes-or-no for each class (Wightman et al., 2021). Pictures with several labels
    # always have the latter
    loss: str = "cross_entropy"
    # as in cross-entropy; of several labels towards one half, each being a yes-or-no of its own
    label_smoothing: Share = 0.0
    # "balanced" multiplies the loss of an image by N / (K n), for N training images of K classes and n of its class:
    # all classes weigh alike, and the mean over the training images is 1; "none" by 1
    class_weights: str = "none"
    # whether an epoch has as many images of one class as of another, and as many in all as the training images: those
    # of small classes come several times, of large ones some are left out, others each epoch
    balanced_sampler: bool = False
    # dropout, drop_path: of the net while it trains; see `archs.build`
    dropout: Dropped = 0.0
    drop_path: Dropped = 0.0
    clip_grad: Annotated[float, Meta(ge=0, le=10**9)] = 0.0  # largest gradient norm; 0 for none
    ema_decay: Share = 0.0  # decay of the averaged weights a step, reached after a ramp; 0 evaluates the plain weights
    sam_rho: Rate = 0.0  # rho of sharpness-aware minimisation (Foret et al., ICLR 2021), two passes a step; 0 for none
    grad_accum_steps: Images = 1  # passes that a step is split into; they share one update
    precision: str = "auto"  # "float32", "bfloat16" or "float16" (autocast); "auto" takes what the device is fast in
    compile: bool = False  # whether torch.compile makes the net faster first
    augment: Augment = field(default_factory=Augment)  # of the training images
    refit: bool = False  # whether the last layer is fitted in closed form at the end; see `training.refit`
    # that `fitted_recipe` gives a training on few pictures at least; 0 leaves the epochs as they are
    min_steps: Annotated[int, Meta(ge=0, le=10**9)] = 0

    def __post_init__(self) -> None:
        check_fields(self, "recipe")
        for name, known in CHOICES.items():
            check_choice(f"recipe: {name}", getattr(self, name), known)
        if self.class_weights != "none" and self.balanced_sampler:
            rule = "class_weights and balanced_sampler both make up for uneven classes; choose one"
            raise InputError(f"recipe: {rule}, got {self.class_weights} and true")
        if self.grad_accum_steps > self.batch_size or self.warmup + self.cooldown > 1:
            names = "grad_accum_steps" if self.grad_accum_steps > self.batch_size else "warmup + cooldown"
            raise InputError(f"recipe: {names} is more than there is: {self.batch_size} images, a budget of 1")

    def steps_per_epoch(self, images: int) -> int:
        """Optimizer steps in one pass over `images`; the last, smaller batch is left out."""
        return max(1, images // self.batch_size)

    def images_a_step(self, images: int) -> int:
        """Images of each step, of so many."""
        return min(self.batch_size, images)

    def steps(self, images: int) -> int:
        """The full budget in optimizer steps."""
        return max(1, round(self.epochs * self.steps_per_epoch(images)))

    def with_epochs(self, epochs: float) -> Recipe:
        """The same recipe at another budget; raises InputError unless `epochs` is above 0 and finite."""
        return replace(self, epochs=float(epochs), min_steps=0)

    def on(self, images: int) -> Recipe:
        """The recipe with steps of no more than all of so many images, and no more passes; of 0 nobody knows."""
        batch = min(self.batch_size, images or self.batch_size)
        return replace(self, batch_size=batch, grad_accum_steps=min(self.grad_accum_steps, batch))

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, data: Any) -> Recipe:
        """Rebuild from `to_dict`; fields left out take their defaults.

        Raises InputError if a field is unknown, missing or wrong.
        """
        return convert(data, cls, "recipe")


def check_devices(recipe: Recipe, images: int, devices: int) -> None:
    """Raise InputError if steps over so many training images are too small to be shared by so many devices."""
    a_pass = recipe.images_a_step(images) // recipe.grad_accum_steps
    if devices > 1 and a_pass < LEAST_PASS * devices:
        rule = f"{devices} share passes of at least {LEAST_PASS * devices} images"
        raise InputError(f"gpus-per-trial: {rule}, those of recipe {recipe.name} have {a_pass}")


def check_on(
    recipe: Recipe, white_level: float, channels: int, size: tuple[int, int], several_labels: bool = False
) -> None:
    """Raise InputError if the recipe does not fit images of (height, width); a white level of 0 is none."""
    how = recipe.augment
    by_class = {"class_weights": recipe.class_weights != "none", "balanced_sampler": recipe.balanced_sampler}
    for name in (name for name, asked in by_class.items() if asked and several_labels):
        raise InputError(f"recipe {recipe.name}: {name} needs one class a picture; these have several labels")
    if how.ra_num_ops and not white_level:
        rule = "RandAugment needs images of whole numbers from 0 to 255"
        raise InputError(f"recipe {recipe.name}: {rule}; these are of other numbers")
    if how.ra_num_ops and channels not in (1, 3):
        raise InputError(f"recipe {recipe.name}: RandAugment needs 1 or 3 channels, these have {channels}")
    if how.pad > min(size):
        sides = f"{size[0]}x{size[1]}"
        raise InputError(f"recipe {recipe.name}: augment.pad {how.pad} is more than a side of {sides} images")
