"""Trained weights that nets start from: kept in the run's folder, where every worker reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from .training.job import InitWeights

if TYPE_CHECKING:
    from ..archs import Network
    from ..results.runs.weights_spec import LoadedWeights, WeightsSpec


@dataclass(frozen=True, eq=False)
class Pretrained:
    """Weights that the nets of a run start from.

    Attributes:
        start: how a net begins with them.
        digest: of them; another one is another search.
    """

    start: InitWeights
    network: Network
    digest: str

    def save(self) -> None:
        """Write them where the trainings look for them."""
        from ..archs.weights import save

        if not (file := Path(self.start.weights)).exists():
            save(self.network, file)


def load_pretrained(spec: WeightsSpec, folder: Path, classes: Sequence[str]) -> Pretrained:
    """Find weights for a search. Their last layer is kept where it knows the same classes, else it starts at zero.

    Args:
        classes: of the data, in the order of the logits.

    Raises:
        InputError: if there are no such weights, or no genotype describes their net.
        OperationError: if timm's weights cannot be downloaded.
    """
    found = spec.find()
    return starting_from(found, folder, zero_head=found.classes != tuple(classes))


def starting_from(found: LoadedWeights, folder: Path, zero_head: bool, freeze: str = "none") -> Pretrained:
    """Weights that start trainings: as a file in the run's folder, which every worker reads."""
    digest = found.lineage["sha256"]
    file = folder.absolute() / "starts" / f"{digest}.safetensors"
    start = InitWeights(str(file), found.label, found.lineage["steps"], zero_head, freeze)
    return Pretrained(start, found.network, digest)
