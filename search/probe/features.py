"""Features of pictures after every block of a frozen net, from one forward pass: in memory, or in a file if many.

N pictures, B of a batch, F features.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ...archs.errors import OperationError
from ...archs.timm.cuts import pooled

MEMORY_LIMIT = 256 * 2**20  # bytes of features that are kept in memory
MAX_AXES = 1024  # pictures or features, whichever are fewer: beyond it only the mean is judged
OF_ONE_MAP = ("mean", "mean-max", "grid")
MIN_SIDES = {"mean-max": 2, "grid": 4}  # of a map, below which a pooling says nothing more than its mean, or hardly
MapsOf = Callable[[Tensor], Sequence[Tensor]]


@dataclass(frozen=True)
class Columns:
    """Some columns of a matrix of features, whose rows are read when they are asked for."""

    matrix: Callable[[], np.ndarray]
    spans: tuple[slice, ...]
    pictures: int

    @property
    def shape(self) -> tuple[int, int]:
        return self.pictures, sum(span.stop - span.start for span in self.spans)

    def __getitem__(self, rows: np.ndarray) -> np.ndarray:
        matrix = self.matrix()
        return np.concatenate([matrix[rows, span] for span in self.spans], axis=1)


class FeatureMatrix:
    """Features of each picture, (N, all columns) in float32, filled batch by batch.

    Attributes:
        file: where they lie if they take more than MEMORY_LIMIT. Each reading opens it anew, so that pages that were
            read do not stay in this process's memory.
        spans: columns of each block and pooling.
        finite_F: by column, whether all of its values are.
    """

    def __init__(self, pictures: int, file: Path) -> None:
        self.pictures, self.file = pictures, file
        self.spans = dict[tuple[int, str], slice]()
        self.finite_F = np.ones(0, bool)
        self._memory: np.ndarray | None = None
        self._filled = 0

    @property
    def blocks(self) -> int:
        return 1 + max(block for block, _ in self.spans)

    def columns(self, block: int, pooling: str) -> Columns | None:
        """Features of a pooling after a block; None where it is left out."""
        keys = [(of, "mean") for of in range(block + 1)] if pooling == "all" else [(block, pooling)]
        if any(key not in self.spans for key in keys) or (pooling == "all" and block == 0):
            return None
        found = Columns(self._matrix, tuple(self.spans[key] for key in keys), self.pictures)
        return found if pooling == "mean" or min(found.shape) <= MAX_AXES else None

    def is_finite(self, columns: Columns) -> bool:
        return all(self.finite_F[span].all() for span in columns.spans)

    def fill(self, maps_of: MapsOf, batches: Iterable[Tensor]) -> None:
        """Run all pictures through the net, and keep what is pooled of its maps.

        `maps_of`: maps x_BCHW after each block of the frozen net in eval mode, for a batch of pictures. `batches`: all
        pictures in the order of their labels. Raises OperationError if the file cannot be written.
        """
        with torch.inference_mode():
            for x_BCHW in batches:
                self._add(self._pooled(maps_of(x_BCHW)))
        assert self._filled == self.pictures, "the labels and the pictures differ in number"

    def _pooled(self, maps: Sequence[Tensor]) -> np.ndarray:
        """All columns of a batch."""
        if not self.spans:
            self._lay_out(maps)
        parts = [pooled([maps[block]], pooling) for block, pooling in self.spans]
        return torch.cat(parts, 1).float().cpu().numpy()

    def _lay_out(self, maps: Sequence[Tensor]) -> None:
        start = 0
        for block, map_BCHW in enumerate(maps):
            channels, *sides = map_BCHW.shape[1:]
            for pooling, times in zip(OF_ONE_MAP, (1, 2, 4), strict=True):
                is_small = min(self.pictures, times * channels) <= MAX_AXES
                if pooling == "mean" or (is_small and min(sides) >= MIN_SIDES[pooling]):
                    self.spans[block, pooling] = slice(start, start := start + times * channels)
        self.finite_F = np.ones(start, bool)
        if self.pictures * start * 4 <= MEMORY_LIMIT:
            self._memory = np.zeros((self.pictures, start), np.float32)

    def _add(self, f_BF: np.ndarray) -> None:
        self.finite_F &= np.isfinite(f_BF).all(0)
        if self._memory is not None:
            self._memory[self._filled : self._filled + len(f_BF)] = f_BF
        else:
            self._append(f_BF)
        self._filled += len(f_BF)

    def _append(self, f_BF: np.ndarray) -> None:
        try:
            with open(self.file, "ab") as file:
                file.write(f_BF.tobytes())
        except OSError as error:
            raise OperationError(f"probe: {self.file}: cannot be written ({error.strerror})") from None

    def _matrix(self) -> np.ndarray:
        if self._memory is not None:
            return self._memory
        return np.memmap(self.file, np.float32, "r", shape=(self.pictures, len(self.finite_F)))
