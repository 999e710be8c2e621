"""The contract of a space, checked on random nets before a search stands on it, and on every net of a user's own.

A gene has a name and options that never change, every gene is chosen for every net, and the genes alone decide
which net it is: without that, no strategy learns from the nets before, and no search resumes.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Protocol

from ..archs import Genotype, InputError, static_cost
from ..archs.errors import short_repr
from ..archs.layout import ImageSize, as_map
from ..archs.user_code import user_code_errors
from .base import Chooser, FixedChooser, Gene, Genes, RandomChooser, RecordingChooser

DRAWS = 1000
CLASSES = 10  # to compare baselines by what they cost
Options = dict[str, tuple[Gene, ...]]


class Samples(Protocol):
    """What a space must be able to do."""

    def sample(self, chooser: Chooser) -> Genotype: ...


def check(space: Samples, what: str, image_size: ImageSize, draws: int = DRAWS) -> Options:
    """Draw random nets, each twice, and return the genes' options, in the order they are chosen.

    Args:
        what: the space, as messages begin.

    Raises:
        InputError: naming the gene or the rule that a net breaks.
    """
    chooser = RandomChooser(0)
    _, first = draw(space, what, chooser, image_size)
    for _ in range(draws):
        net, memo = draw(space, what, chooser, image_size)
        check_options(what, first.options, memo.options)
        again, _ = draw(space, what, FixedChooser(memo.genes), image_size)
        if again != net:
            raise InputError(f"{what}: sample() goes by more than its genes: {_text(memo.genes)} gave two nets")
    return first.options


def draw(space: Samples, what: str, chooser: Chooser, image_size: ImageSize) -> tuple[Genotype, RecordingChooser]:
    """A net, its genes and their options.

    Raises:
        InputError: if `sample` raises anything, or gives what is no net for such images.
    """
    memo = RecordingChooser(chooser)
    with user_code_errors(what):
        net = space.sample(_Asked(memo))
    if not isinstance(net, Genotype):
        raise InputError(f"{what}: sample() must return a Genotype, got {short_repr(net)}")
    if not memo.options:
        raise InputError(f"{what}: sample() chooses no gene, so there is one net alone")
    _check_fits(f"{what}: the net of {_text(memo.genes)}", net, image_size)
    return net, memo


def check_options(what: str, before: Options, now: Options) -> None:
    """Raise InputError if the genes or their options differ between two nets."""
    for name in before.keys() ^ now.keys():
        rule = "chosen for some nets and not for others; choose it for each, and leave it aside where it is not used"
        raise InputError(f"{what}: gene {name}: {rule}")
    for name, options in before.items():
        if now[name] != options:
            rule = f"its options change from net to net, {list(options)} and {list(now[name])}"
            raise InputError(f"{what}: gene {name}: {rule}")


def check_baselines(nets: Any, what: str, image_size: ImageSize) -> tuple[Genotype, ...]:
    """The baselines, if they are plain ResNets for such images, cheapest first.

    Raises:
        InputError: otherwise.
    """
    if not isinstance(nets, (tuple, list)) or not all(isinstance(net, Genotype) for net in nets):
        raise InputError(f"{what}: baselines() must return a tuple of Genotypes, got {short_repr(nets)}")
    macs = 0
    for number, net in enumerate(nets, start=1):
        place = f"{what}: baseline {number}"
        _check_fits(place, net, image_size)
        if net.family != "resnet":
            raise InputError(f"{place}: must be a plain ResNet, got one of family {net.family!r}")
        before, macs = macs, static_cost(net, CLASSES, image_size).macs
        if macs <= before:
            raise InputError(f"{place}: must cost more than the one before, got {macs} MACs after {before}")
    return tuple(nets)


class _Asked:
    """Passes on what a space asks, if it is a gene."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser

    def choose(self, name: str, options: Sequence[Gene]) -> Gene:
        if not isinstance(name, str) or not name:
            raise InputError(f"a gene's name must be a text, got {short_repr(name)}")
        if not isinstance(options, (tuple, list)) or not options:
            raise InputError(f"gene {name}: options must be a tuple of one or more, got {short_repr(options)}")
        texts = all(isinstance(option, str) for option in options)
        numbers = all(isinstance(option, (int, float)) and math.isfinite(option) for option in options)
        if not (texts or numbers):
            raise InputError(f"gene {name}: options must be numbers alone or texts alone, got {short_repr(options)}")
        if len(set(options)) < len(options):
            raise InputError(f"gene {name}: an option stands there twice, got {short_repr(options)}")
        return self._chooser.choose(name, tuple(options))


def _check_fits(place: str, net: Genotype, image_size: ImageSize) -> None:
    try:
        net.check(image_size)
    except InputError as error:
        height, width = as_map(image_size)
        raise InputError(f"{place} does not fit images of {height}x{width} px: {error}") from None


def _text(genes: Genes) -> str:
    return ", ".join(f"{name} {value}" for name, value in genes.items())
