"""`Training`: one training of a plan, as a value that knows its identity."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from functools import cached_property
from hashlib import sha256
from typing import Any

from ...archs import Genotype
from ..data.splits import WHOLE, View
from ..training.job import FewShot
from ..training.recipe import Recipe


@dataclass(frozen=True)
class WeightsOrigin:
    """Where a training's first weights come from.

    Attributes:
        of: identity of the training of the same plan whose weights they are, or of a file's content.
        label: what a person calls them.
        file: the file; "" for another training's.
        steps: optimiser steps spent on them before; None if unknown.
        zero_head, freeze: as of `Start`.
    """

    of: str
    label: str
    file: str = ""
    steps: int | None = None
    zero_head: bool = False
    freeze: str = "none"


@dataclass(frozen=True)
class Training:
    """One training of a plan.

    Attributes:
        net: what is trained.
        recipe: how.
        steps: the full budget, in optimiser steps.
        seed: of the training.
        factors: what the plan varies, by name; trainings that differ in the seed alone share them.
        view: part of the data.
        origin: where it starts; None is from scratch.
        task, test, few, keep: as of `Job`.
    """

    net: Genotype
    recipe: Recipe
    steps: int
    seed: int
    factors: dict[str, Any] = field(default_factory=dict)
    view: View = WHOLE
    origin: WeightsOrigin | None = None
    task: str = "classes"
    test: bool = False
    few: FewShot | None = None
    keep: tuple[str, ...] = ()

    @cached_property
    def id(self) -> str:
        """12 hexadecimal digits of all that makes the result what it is, on given data."""
        begun = [self.origin.of, self.origin.zero_head, self.origin.freeze] if self.origin else None
        facts = [self.net.key, self.recipe.to_dict(), self.steps, self.seed, asdict(self.view), begun]
        facts += [self.task, self.test, asdict(self.few) if self.few else None]
        facts += [list(self.keep)] if self.keep else []
        return sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def parent(self) -> str:
        """Identity of the training of the same plan that must end first; "" if there is none."""
        return self.origin.of if self.origin and not self.origin.file else ""
