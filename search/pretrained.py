"""Trained weights that nets start from, or are cut from: kept in the run's folder, where every worker reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..archs.errors import InputError
from ..archs.own_net import OwnNet
from .training.job import InitWeights

if TYPE_CHECKING:
    from ..archs import Network
    from ..results.runs.weights_spec import LoadedWeights, WeightsSpec


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Weights that the nets of a run start from."""

    start: InitWeights  # how a net begins with them
    network: Network
    digest: str  # of them; another one is another search

    def save(self) -> None:
        """Write them where the trainings look for them."""
        from ..archs.weights import save

        if not (file := Path(self.start.weights)).exists():
            save(self.network, file)


def load_pretrained(spec: WeightsSpec, folder: Path, classes: Sequence[str]) -> Pretrained:
    """Find weights for a search. Their last layer is kept where it knows the same classes, else it starts at zero.

    `classes`: of the data, in the order of the logits. Raises InputError if there are no such weights, or no genotype
    describes their net. Raises OperationError if timm's weights cannot be downloaded.
    """
    found = spec.find()
    return starting_from(found, folder, zero_head=found.classes != tuple(classes))


def starting_from(found: LoadedWeights, folder: Path, zero_head: bool, freeze: str = "none") -> Pretrained:
    """Weights that start trainings: as a file in the run's folder, which every worker reads."""
    digest = found.lineage["sha256"]
    file = folder.absolute() / "starts" / f"{digest}.safetensors"
    start = InitWeights(str(file), found.label, found.lineage["steps"], zero_head, freeze)
    return Pretrained(start, found.network, digest)


@dataclass(frozen=True, eq=False)
class OwnWeights:
    """A net of our own whose cuts are searched, and its weights."""

    words: str  # what names it, as `WeightsSpec` takes them
    net: OwnNet
    weights: Pretrained


def load_own(words: str, folder: Path) -> OwnWeights:
    """A trained net of our own by RUN:TRIAL, an exported folder or a file, to be cut in a run with this folder.

    Raises InputError if there is no such net, or it takes other images than square ones of 1 or 3 channels.
    """
    from ..results.runs.weights_spec import WeightsSpec

    found = WeightsSpec(words).find()
    network, (height, width) = found.network, found.network.image_size
    if height != width or network.in_chans not in (1, 3):
        rule = "only nets of square pictures of 1 or 3 channels are cut"
        raise InputError(f"nets: {rule}, {words} takes {network.in_chans} x {height} x {width}")
    mean, std = _unit_moments(found)
    digest, data = found.lineage["sha256"], found.data or ""
    net = OwnNet(Path(words).resolve().name, network.genotype, height, network.in_chans, mean, std, digest, data)
    return OwnWeights(words, net, starting_from(found, folder, zero_head=False))


def _unit_moments(found: LoadedWeights) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """(mean, std) by channel that pictures of 0 to 1 are normalised with, as the net's own images were.

    Where nothing is known of those, 0 to 1 is two deviations to both sides of the mean, as of most photographs.
    """
    if not (found.mean and found.std and found.white_level):
        channels = found.network.in_chans
        return (0.5,) * channels, (0.25,) * channels
    white = found.white_level
    return tuple(value / white for value in found.mean), tuple(value / white for value in found.std)
