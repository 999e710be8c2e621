"""The `Space` protocol, choosers that pick gene values, and members and neighbors of a space.

A space draws every gene every time and ignores the dormant ones, so the names and options of its
genes never change. Optuna's chooser lives with the strategies; these need no library.
"""

import random
from collections.abc import Iterator, Mapping
from math import gcd, prod
from types import MappingProxyType
from typing import Protocol, TypeVar, cast

from ..archs import Genotype
from ..archs.candidate import candidate_key
from ..archs.errors import InputError
from .fit import stem_name

Gene = int | float | str
Genes = dict[str, Gene]
Priors = Mapping[str, Mapping[Gene, float]]  # by gene: the weight of an option in random draws; 1 where none is given
Option = TypeVar("Option", bound=Gene)  # an answer is of its options' type


class Chooser(Protocol):
    """Answers one gene at a time."""

    def choose(self, name: str, options: tuple[Option, ...]) -> Option: ...


class RandomChooser:
    """Independent draws from a seed: uniform, or by priors."""

    def __init__(self, seed: int, priors: Priors = MappingProxyType({})) -> None:
        self._random, self._priors = random.Random(seed), priors

    def choose(self, name: str, options: tuple[Option, ...]) -> Option:
        return draw_option(self._random, name, options, self._priors)


def draw_option(draw: random.Random, name: str, options: tuple[Option, ...], priors: Priors) -> Option:
    """Draw an option of a gene, each as often as its prior says."""
    if name not in priors:
        return draw.choice(options)
    weights = [priors[name].get(option, 1.0) for option in options]
    return draw.choices(options, weights)[0]


class FixedChooser:
    """Gives back recorded genes, which must be among the options; one that is not recorded takes its first."""

    def __init__(self, genes: Mapping[str, Gene]) -> None:
        self._genes = genes

    def choose(self, name: str, options: tuple[Option, ...]) -> Option:
        value = self._genes.get(name, options[0])
        if value not in options:
            raise InputError(f"gene {name}: must be one of {list(options)}, got {value!r}")
        return cast(Option, value)


class RecordingChooser:
    """Asks another chooser, each gene once, always with the same options, and remembers answers and options."""

    def __init__(self, chooser: Chooser) -> None:
        self._chooser = chooser
        self.genes: Genes = {}
        self.options: dict[str, tuple[Gene, ...]] = {}

    def choose(self, name: str, options: tuple[Option, ...]) -> Option:
        if self.options.setdefault(name, options) != options:
            known = list(self.options[name])
            raise InputError(f"gene {name}: chosen twice with other options, {known} and {list(options)}")
        if name not in self.genes:
            self.genes[name] = self._chooser.choose(name, options)
        return cast(Option, self.genes[name])


class Space(Protocol):
    """A set of nets at one image size, drawn gene by gene."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    def sample(self, chooser: Chooser) -> Genotype:
        """Draw every gene from `chooser`, always the same names and options; the net is valid."""
        ...

    def baselines(self) -> tuple[Genotype, ...]:
        """Plain ResNets, cheapest first, of which every search trains some for comparison: those that span it."""
        ...


class JointSpace:
    """A space whose nets are drawn together with genes of their training's recipe, which change no net."""

    def __init__(self, nets: Space, tuned: Mapping[str, tuple[Gene, ...]], own: Genes) -> None:
        if taken := sorted(options_of(nets).keys() & tuned.keys()):
            raise InputError(f"tune: space {nets.name!r} has a gene {taken[0]!r} of its own")
        self.name, self.nets, self.tuned, self.own = nets.name, nets, tuned, own
        self.priors = priors_of(nets)

    def sample(self, chooser: Chooser) -> Genotype:
        net = self.nets.sample(chooser)
        for name, choices in self.tuned.items():
            chooser.choose(name, choices)
        return net

    def baselines(self) -> tuple[Genotype, ...]:
        return self.nets.baselines()


def random_genes(draw: random.Random, options: Mapping[str, tuple[Gene, ...]], priors: Priors) -> Genes:
    """Draw every gene, by priors."""
    return {name: draw_option(draw, name, choices, priors) for name, choices in options.items()}


def priors_of(space: Space) -> Priors:
    """Weights of options in random draws: the space's `priors`, or none."""
    return getattr(space, "priors", {})


def random_net(space: Space, seed: int) -> Genotype:
    """A net drawn at random, by the space's priors."""
    return space.sample(RandomChooser(seed, priors_of(space)))


def options_of(space: Space) -> dict[str, tuple[Gene, ...]]:
    """Every gene's options, by name, in the order they are drawn."""
    memo = RecordingChooser(RandomChooser(0))
    space.sample(memo)
    return memo.options


def first_genes(space: Space) -> Genes:
    """The first option of each gene; those of a recipe are its own."""
    first = {name: choices[0] for name, choices in options_of(space).items()}
    return first | space.own if isinstance(space, JointSpace) else first


def members(space: Space) -> Iterator[tuple[Genes, Genotype]]:
    """Every distinct candidate of a space, once, with genes that give it, in a fixed order that scatters."""
    options, keys, seen = options_of(space), dict[Genotype, str](), set()
    count = prod(len(choices) for choices in options.values())
    # Steps of the golden section, round and round, meet every number below `count` once.
    step = next(s for s in range(round(count * 0.618) or 1, 2 * count + 1) if gcd(s, count) == 1)
    for i in range(count):
        number, genes = i * step % count, Genes()
        for name, choices in options.items():
            number, at = divmod(number, len(choices))
            genes[name] = choices[at]
        net = space.sample(FixedChooser(genes))
        if net not in keys:  # a net hashes in a tenth of the time that its key takes
            keys[net] = net.key
        if (key := candidate_key(keys[net], genes)) not in seen:
            seen.add(key)
            yield genes, net


def plain_genes(space: Space, net: Genotype) -> Genes | None:
    """The genes of a plain ResNet, such as a baseline, with the recipe's own; None if it is not in the space."""
    stages = enumerate(net.stages, start=1)
    known: Genes = {"family": "resnet", "block": net.stages[0].block, "width": net.stages[0].width}
    known |= {"stem": stem_name(net.stem), "stem_stride": net.stem.stride}
    known |= {f"depth{number}": stage.depth for number, stage in stages}
    fitting = {name: known[name] for name, choices in options_of(space).items() if known.get(name) in choices}
    genes = first_genes(space) | fitting
    return genes if space.sample(FixedChooser(genes)).key == net.key else None


SHIFTED = "msa"  # genes of this name and a stage's number, or a place's, hold blocks that may move to another


def neighbors(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> list[Genes]:
    """All genes one move away, in a fixed order.

    A gene of numbers takes the option before or after its own (options stand in order): one MSA block more
    or less at a stage's end, one block deeper, the next width. A gene of names (family, block, pool) takes any
    other. And one MSA block leaves a stage's end for another's; where each place has a gene, it leaves one
    place for another, in its stage or elsewhere. A move may change a gene that the net does not use: then it
    gives the same net.
    """
    return [genes | change for change in mutations(genes, options)]


def mutations(genes: Genes, options: Mapping[str, tuple[Gene, ...]]) -> list[Genes]:
    """The genes that each of the `neighbors` changes, in their order."""
    changes: list[Genes] = []
    places = {name: choices.index(genes[name]) for name, choices in options.items()}
    for name, choices in options.items():
        at = places[name]
        near = range(len(choices)) if isinstance(choices[0], str) else (at - 1, at + 1)
        changes += [{name: choices[to]} for to in near if to != at and 0 <= to < len(choices)]
    stages = [name for name in options if name.startswith(SHIFTED)]
    for source in stages:  # one block less here, one more there
        for to in stages:
            if source != to and places[source] > 0 and places[to] + 1 < len(options[to]):
                changes.append({source: options[source][places[source] - 1], to: options[to][places[to] + 1]})
    return changes
