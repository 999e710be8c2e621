"""Fields of a recipe as genes (`--tune`): which values each may take, and the recipe that genes give.

A field is a gene of a dozen values at most, as a net's are: finer steps than a factor of 2 in the rate are within the
noise of one training. The recipe's own value is always among them; plain ResNets and references are trained with it.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations, product
from typing import Any, cast, get_type_hints

from ...archs.candidate import RECIPE, tuned_values
from ...archs.errors import InputError, check_choice, short_repr
from ...spaces import Gene, Genes
from . import recipes
from .recipe import CHOICES, Augment, Recipe

POINTS = 7  # values of a range, beside the recipe's own
MOST_VALUES = 20  # of a list
FACTORS = {"lr": 8, "avg_pool_lr": 8, "weight_decay": 10, "clip_grad": 4}  # own value / factor to x factor, log scale
SHARES = {"drop_path": 0.3, "dropout": 0.3, "label_smoothing": 0.2, "warmup": 0.3, "sam_rho": 0.1}  # from 0
SHARES |= {"augment.mixup": 0.4, "augment.cutmix": 1.0, "augment.reprob": 0.4}
OWN, NONE = "own", "none"  # augmentations: the recipe's, and no augmentation; others by the recipe that has them
AUGMENTS = (NONE, OWN, "fast", "paper_cifar")  # without, own, flips and shifts, RandAugment and mixing
LENGTHS = ("epochs", "batch_size", "grad_accum_steps")
WHOLE = ("pad", "ra_num_ops")  # numbers of an augmentation that must be whole

NUMBERS = [name for name, hint in get_type_hints(Recipe).items() if hint is float and name not in LENGTHS]
PARTS = [f"augment.{name}" for name, hint in get_type_hints(Augment).items() if hint in (int, float)]
NAMES = [*NUMBERS, *CHOICES, "augment", *PARTS]


def tuned_genes(recipe: Recipe, names: Sequence[str], ranges: Mapping[str, Any]) -> dict[str, tuple[Gene, ...]]:
    """The genes of a recipe's fields, each with the values it may take, numbers rising.

    Args:
        recipe: whose fields they are.
        names: of the fields; () are all that `ranges` has.
        ranges: of some of them, as in a recipe's file: [low, high], [low, high, "log"], or a list of values.

    Raises:
        InputError: if a field is unknown or cannot be tuned, a range is wrong, or a value is none for the recipe.
    """
    for name in (*names, *ranges):
        if name in LENGTHS:
            raise InputError(f"tune: {name} cannot be: trials are compared after equal steps of equal batches")
        check_choice("tune: field", name, NAMES)
    fields = names or tuple(ranges)
    if "augment" in fields and (part := next((name for name in fields if name.startswith("augment.")), "")):
        raise InputError(f"tune: augment is a choice of whole augmentations; leave it or {part} out")
    options = {RECIPE + name: _values(recipe, name, ranges.get(name)) for name in fields}
    _check_values(recipe, options)
    return options


def own_genes(recipe: Recipe, options: Mapping[str, tuple[Gene, ...]]) -> Genes:
    """The genes of the recipe itself."""
    return {gene: _own_value(recipe, name) for gene, name in zip(options, tuned_values(options), strict=True)}


def recipe_of(recipe: Recipe, genes: Mapping[str, Gene]) -> Recipe:
    """The recipe with the values that genes set; itself where they are its own.

    A rate of its own for transformers that are read by averaging keeps its ratio to `lr`, unless it is a gene too.
    """
    changes: dict[str, Any] = {}
    for name, value in tuned_values(genes).items():
        if name == "augment":
            changes[name] = _augment(recipe, str(value))
        elif name.startswith("augment."):
            changes["augment"] = replace(changes.get("augment", recipe.augment), **{name.partition(".")[2]: value})
        else:
            changes[name] = value
    if "lr" in changes and "avg_pool_lr" not in changes:
        changes["avg_pool_lr"] = recipe.avg_pool_lr * changes["lr"] / recipe.lr
    return replace(recipe, **changes)


def single_changes(recipe: Recipe, options: Mapping[str, tuple[Gene, ...]]) -> list[Recipe]:
    """The recipe with each value of each gene in turn, all others being its own."""
    return [recipe_of(recipe, {gene: value}) for gene, values in options.items() for value in values]


def _values(recipe: Recipe, name: str, given: Any) -> tuple[Gene, ...]:
    """The values of a field: those of its range, the usual one if none is given, and the recipe's own."""
    if name == "augment" or name in CHOICES:
        known = (NONE, OWN, *recipes.RECIPES) if name == "augment" else CHOICES[name]
        return _texts(name, recipe, AUGMENTS if given is None and name == "augment" else given, known)
    own = cast(float, _own_value(recipe, name))
    values = _usual(name, own) if given is None else _numbers(name, given)
    whole = name.rpartition(".")[2] in WHOLE
    return tuple(sorted({round(value) if whole else float(value) for value in (*values, own)}))


def _texts(name: str, recipe: Recipe, given: Any, known: Sequence[str]) -> tuple[Gene, ...]:
    """Names out of `known`, in their order there, with the recipe's own; of equal augmentations the own one."""
    if given is None:
        raise InputError(f'tune: {name} has no usual values; list them as "tune" of the recipe\'s JSON')
    if not isinstance(given, list | tuple) or not given:
        raise InputError(f"tune: {name}: must be a list of names, got {short_repr(given)}")
    for value in given:
        check_choice(f"tune: {name}", value, known)
    own = _own_value(recipe, name)
    values = [value for value in known if value in (*given, own)]
    if name == "augment":
        values = [value for value in values if value == OWN or _augment(recipe, value) != recipe.augment]
    if len(values) < 2:
        raise InputError(f"tune: {name}: must have two values or more, got {short_repr(values)}")
    return tuple(values)


def _numbers(name: str, given: Any) -> list[float]:
    """Numbers of a range or a list, as they stand in a recipe's file."""
    rule = f'tune: {name}: must be [low, high], [low, high, "log"] or a list of numbers'
    if not isinstance(given, list | tuple) or len(given) < 2 or len(given) > MOST_VALUES:
        raise InputError(f"{rule}, got {short_repr(given)}")
    *numbers, last = given
    log = last == "log" and len(numbers) == 2
    numbers = numbers if log else [*numbers, last]
    if not all(type(number) in (int, float) and math.isfinite(number) for number in numbers):
        raise InputError(f"{rule}, got {short_repr(given)}")
    if len(numbers) > 2:
        return numbers
    low, high = numbers
    if not (low < high and (low > 0 or not log)):
        rule = "must rise from a number above 0" if log else "must rise"
        raise InputError(f"tune: {name}: the range {rule}, got {short_repr(given)}")
    return _grid(low, high, log)


def _usual(name: str, own: float) -> list[float]:
    """The values of a field for which no range is given."""
    if name in SHARES:
        return _grid(0, max(own, SHARES[name]), log=False)
    if name not in FACTORS or own == 0:
        zero = " where it is 0 in the recipe" if name in FACTORS else ""
        raise InputError(f'tune: {name} has no usual range{zero}; give it one as "tune" of the recipe\'s JSON')
    return _grid(own / FACTORS[name], own * FACTORS[name], log=True)


def _grid(low: float, high: float, log: bool) -> list[float]:
    """`POINTS` values from `low` to `high`, to four digits but for the two ends."""
    shares = [number / (POINTS - 1) for number in range(1, POINTS - 1)]
    inner = (low * (high / low) ** share if log else low + (high - low) * share for share in shares)
    return [low, *(float(f"{value:.4g}") for value in inner), high]


def _own_value(recipe: Recipe, name: str) -> Gene:
    if name == "augment":
        return OWN
    part, _, inner = name.partition(".")
    value = getattr(recipe.augment, inner) if inner else getattr(recipe, part)
    return float(value) if isinstance(value, int) and inner not in WHOLE else value


def _augment(recipe: Recipe, name: str) -> Augment:
    if name == OWN:
        return recipe.augment
    return Augment() if name == NONE else recipes.get(name).augment


def _check_values(recipe: Recipe, options: Mapping[str, tuple[Gene, ...]]) -> None:
    """Raise InputError if a value, or two together, are none for the recipe: its rules are on one field or two."""
    single_changes(recipe, options)
    for one, other in combinations(options, 2):
        for values in product(options[one], options[other]):
            recipe_of(recipe, dict(zip((one, other), values, strict=True)))
