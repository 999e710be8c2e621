"""Where the weights of a net begin: `WeightSource`, with a class for each way. Records name it by `Weights`.

The nets of a search begin with fresh weights, with those of a similar net of the run (`Relatives`), of a net from
outside (`FromOutside`), or are slices of a bank (`SharedWeights`): see `source_of`. How tensors
are made of another net's is in ../training/inherit.py. `Finetuned` is none of them: it trains a net on from its own.
"""

import logging
from collections import Counter
from dataclasses import replace
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Protocol, cast

from ...archs import Genotype
from ...archs.files import file_digest
from ...results.ranking.objectives import train_flops
from ...results.runs.record import Record
from ...results.runs.status import Status, Weights
from ...results.runs.store import weights_file
from ..context import SearchContext
from ..strategies.strategy_context import features
from ..training.job import InitWeights, Job
from ..training.recipe import Recipe
from .proposer import MAX_NETS
from .shared_weights import SharedWeights
from .trial import BUDGET_SHARE, Parent, Trial

MIN_SHARED = 0.5  # share of a net's blocks that its parent must have too, where nets are expected to train for less
log = logging.getLogger("alternas")
RATE = 0.75  # of the recipe's learning rate, where a net is trained on


class WeightSource(Protocol):
    """How the nets of a search come by their weights; what a source does not say itself is said of fresh ones."""

    def heir_share(self, begun: int, to_begin: int) -> float:
        """The share of the nets to begin that is expected to start from trained weights, for the smaller budget."""
        return 0.0

    @property
    def ready(self) -> bool:
        """Whether nets can begin."""
        return True

    def choose(self, trial: Trial) -> int | None:
        """The earlier trial that a new one begins with; None where it needs none."""
        return None

    def begin(self, trial: Trial, parent: int | None) -> None:
        """Give a trial its weights and its budget, `parent` being what was chosen for it when it was proposed."""

    def begin_plain(self, trial: Trial) -> None:
        """Do the same for a plain ResNet."""

    def job(self, trial: Trial) -> Job | None:
        """The job that gives a trial its accuracy; None where that is its training."""
        return None

    def counts(self, record: Record) -> bool:
        """Whether a net that was trained is known by this to the strategy: it is not by what came of it later."""
        return record.weights != Weights.FINETUNED

    def apply(self, record: Record) -> None:
        """Take in the next record of a net that was trained."""


class Fresh(WeightSource):
    """Fresh weights."""


class FromOutside(WeightSource):
    """The weights of a net from outside, which plain ResNets begin with too."""

    def __init__(self, parent: Parent, rung_steps: tuple[int, ...]) -> None:
        """`rung_steps` are those of the smaller budget."""
        self._parent, self._rung_steps = parent, rung_steps

    def heir_share(self, begun: int, to_begin: int) -> float:
        return 1.0

    def begin(self, trial: Trial, parent: int | None) -> None:
        trial.inherit(self._parent, self._rung_steps)

    def begin_plain(self, trial: Trial) -> None:
        self.begin(trial, None)


class Relatives(WeightSource):
    """The weights of the most similar trained net of the run; fresh ones where none is similar."""

    def __init__(self, folder: Path, rung_steps: tuple[int, ...]) -> None:
        """`rung_steps` are those of the smaller budget of an heir."""
        self._folder, self._rung_steps = folder, rung_steps
        self._parents, self._records = dict[int, Parent](), dict[int, Record]()

    def heir_share(self, begun: int, to_begin: int) -> float:
        """All but the first nets, which are unlike each other."""
        return max(0, begun + to_begin - max(begun, MAX_NETS)) / to_begin if to_begin else 1.0

    def choose(self, trial: Trial) -> int | None:
        parent = self.most_similar(cast(Genotype, trial.net))
        return parent.trial if parent else None

    def begin(self, trial: Trial, parent: int | None) -> None:
        """Begin with the weights of `parent`; where those are damaged with another's or fresh ones, and anew."""
        if parent is None:
            return
        found = self.get(parent)
        if found is None:
            for checkpoint in (self._folder / "checkpoints").glob(f"{trial.key}*.pt"):
                checkpoint.unlink()
            found = self.most_similar(cast(Genotype, trial.net))
        if found:
            trial.inherit(found, self._rung_steps)

    def apply(self, record: Record) -> None:
        """Take up a net that has ended, if it was trained to the end here and its weights are there.

        Of a net that was trained on the weights that are better on validation count, the later ones of equal ones.
        """
        if record.status != Status.OK or record.taken_from or record.kind == "reference":
            return
        file, accuracy = weights_file(self._folder, record), record.accuracy or 0.0
        if not file.exists():
            return
        before = self._parents.get(record.lineage.get("trial", -1)) if record.weights == Weights.FINETUNED else None
        if before and before.trial is not None:
            if before.accuracy > accuracy:
                return
            del self._parents[before.trial]
        net, self._records[record.trial] = Genotype.from_dict(record.genotype), record
        start = InitWeights(str(file), f"trial {record.trial}", record.steps_in_all)
        self._parents[record.trial] = Parent(start, record.trial, train_flops(record), features(net), net, accuracy)

    def get(self, trial: int) -> Parent | None:
        """A net that others may begin with; None if its weights are not whole."""
        is_whole = trial in self._parents and has_whole_weights(self._folder, self._records[trial])
        return self._parents[trial] if is_whole else None

    def most_similar(self, net: Genotype) -> Parent | None:
        """The parent with the most features in common, the earliest of several, of those that share enough blocks.

        No net inherits from itself: with another recipe it would only be trained for longer.
        """
        own = features(net)
        alike = {
            number: len(own & parent.features) / max(len(own), len(parent.features))
            for number, parent in self._parents.items()
            if parent.features != own and parent.net and shared_blocks(net, parent.net) >= MIN_SHARED
        }
        nearest = sorted(alike, key=lambda number: (-alike[number], number))
        return next(filter(None, map(self.get, nearest)), None)


def has_whole_weights(folder: Path, record: Record) -> bool:
    """Whether a net's file is there and, by its hash, is what was recorded. A damaged one is warned of once."""
    file = weights_file(folder, record)
    if not file.exists():
        return False
    stat = file.stat()
    return _is_whole(file, stat.st_mtime_ns, stat.st_size, record.runtime.get("weights_sha256", ""), record.trial)


@cache
def _is_whole(file: Path, changed_ns: int, size: int, recorded: str, trial: int) -> bool:
    whole = not recorded or file_digest(file) == recorded
    if not whole:
        log.warning("trial %d: its weights have changed since it was trained, no net begins with them: %s", trial, file)
    return whole


def shared_blocks(child: Genotype, parent: Genotype) -> float:
    """Share of a net's blocks, by their channels squared, that another has in the same stage; an encoder is one stage.

    It stands for the share of weights that one inherits: blocks of other kinds give each other almost nothing.
    """
    total = shared = 0.0
    for number, stage in enumerate(child.stages):
        had = Counter(parent.stages[number].kinds if number < len(parent.stages) else ())
        total += stage.channels**2 * stage.depth
        shared += stage.channels**2 * sum((Counter(stage.kinds) & had).values())
    if child.encoder:
        depth = child.encoder.depth * child.encoder.embed_dim**2
        total += depth
        shared += depth * bool(parent.encoder)
    return shared / total if total else 1.0


class Finetuned:
    """The weights that a net of the run has come to, from which it is trained on."""

    def __init__(self, context: SearchContext, shared: SharedWeights | None) -> None:
        self._context, self._shared = context, shared

    def trial(self, number: int, record: Record, steps: int) -> Trial:
        """A trial that trains a net on for so many steps."""
        context, net = self._context, Genotype.from_dict(record.genotype)
        again = record.weights == Weights.FINETUNED
        recipe = finetuning_recipe(Recipe.from_dict(record.recipe), 1.0 if again else RATE)
        fields = context.record_fields | {"recipe": recipe.to_dict()}
        if again:  # has files of its own
            fields |= {"training_id": sha256(f"{record.trial_key}/{record.trial}".encode()).hexdigest()[:12]}
        elif record.training_id:
            fields |= {"training_id": record.training_id}
        shared = self._shared if record.weights == Weights.SHARED else None
        had = shared.budget.steps if shared else record.steps_in_all
        start = InitWeights(str(weights_file(context.folder, record)), f"trial {record.trial}", had)
        spent = shared.bank_training.progress.get("train_flops", 0) if shared else train_flops(record)
        parent, cost = Parent(start, record.trial, spent, features(net)), context.cost_fn(net)
        return Trial(number, record.kind, net, {}, cost, (steps,), fields, parent, weights=Weights.FINETUNED)


def finetuning_recipe(recipe: Recipe, rate: float) -> Recipe:
    """How a net is trained on: at this share of the learning rate, falling to 0, without a long warm-up."""
    rates = {"lr": rate * recipe.lr, "avg_pool_lr": rate * recipe.avg_pool_lr}
    return replace(recipe, **rates, schedule="linear", warmup=0.0, cooldown=0.0)


def source_of(context: SearchContext) -> WeightSource:
    """How the nets that a search proposes come by their weights."""
    if context.settings.supernet:
        return SharedWeights(context)
    heirs = context.scheduler.rungs(max(1, round(BUDGET_SHARE * context.steps)))
    if context.pretrained:
        return FromOutside(Parent(context.pretrained.start), heirs)
    return Relatives(context.folder, heirs) if context.settings.inherit else Fresh()
