"""Nets that a search begins with (`--start-with`): given, of a JSON file, of an earlier run, or of the zoo.

Each is turned into genes of the space that is searched. Records of an earlier run that trained its nets as this one
would are taken over, so that these are not trained again.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..archs import Genotype, zoo
from ..archs.candidate import candidate_key, recipe_genes, tuned_values
from ..archs.errors import InputError, short_repr
from ..archs.json_files import convert, parse_json
from ..archs.layout import ImageSize
from ..results.ranking.run_leaderboard import leaderboard_of
from ..results.runs.record import Record, now
from ..results.runs.status import Status
from ..results.runs.store import find_run, read_records, read_settings
from ..spaces import FixedChooser, Genes, JointSpace, Space, find_genes, options_of, plain_genes
from .strategies.strategy_context import features, fits

# Settings of runs that train a net alike.
SAME = ("recipe", "tune", "data_split", "image_size", "seed", "repeats", "folds", "metric", "trainer")


@dataclass(frozen=True)
class StartWith:
    """Source of the nets that a search begins with: one of these. `str` spells it."""

    nets: tuple[Genotype | Mapping[str, Any], ...] = ()  # the nets themselves, as genotypes or genes
    file: Path | None = None  # a JSON file of such
    run: str = ""  # name or folder of a run
    trial: int | None = None  # and the number of its net; None takes its front
    zoo: tuple[str, ...] = ()  # names of the zoo

    def __str__(self) -> str:
        if self.nets:
            values = [net.to_dict() if isinstance(net, Genotype) else dict(net) for net in self.nets]
            return json.dumps(values)
        if self.run:
            return self.run if self.trial is None else f"{self.run}:{self.trial}"
        return str(self.file) if self.file else ",".join(self.zoo)


@dataclass(frozen=True)
class KnownNets:
    """Nets and records that a search begins with."""

    genes: Sequence[Genes] = ()  # of the nets that are proposed first, in this order
    records: Sequence[Record] = ()  # of an earlier run, whose nets count as trained
    run: Path | None = None
    left_out: Sequence[str] = ()  # why other nets are not proposed, a line each


@dataclass(frozen=True)
class Candidate:
    """A net that was named: a genotype, genes, or both."""

    name: str
    net: Genotype | None
    genes: Mapping[str, Any] = field(default_factory=dict)


class GeneFinder:
    """Says which genes of a space give a net.

    `broken_limits`: says of a net by which share it is over each limit.
    """

    def __init__(
        self, space: Space, image_size: ImageSize, broken_limits: Callable[[Genotype], Mapping[str, float]]
    ) -> None:
        self._joint = space if isinstance(space, JointSpace) else None
        self._space: Space = self._joint.nets if self._joint else space
        self._image_size, self._broken_limits = image_size, broken_limits
        self._options = options_of(self._space)

    def genes(self, candidate: Candidate, look: bool = True) -> Genes:
        """Genes that give the net, with those of its recipe: the recipe's own where it has none, or others.

        `look`: whether they are looked for where the candidate's own are not of this space. Raises InputError if it is
        not in the space, cannot be built at the image size, or is over a limit.
        """
        tuned = recipe_genes(candidate.genes)
        own = {name: value for name, value in candidate.genes.items() if name not in tuned}
        genes = self._own(own) if candidate.net is None else self._of_net(candidate.net, own, look)
        over = self._broken_limits(self.net(genes))
        if over:
            limits = " and ".join(f"max-{name} by {share:.0%}" for name, share in over.items())
            raise InputError(f"is over the limit {limits}")
        return genes | self._tuned(tuned)

    def _tuned(self, genes: Genes) -> Genes:
        """The recipe's genes, if they are of this search; else its own."""
        if self._joint is None:
            return {}
        return genes if fits(genes, self._joint.tuned) else self._joint.own

    def net(self, genes: Genes) -> Genotype:
        """The net that genes give."""
        return self._space.sample(FixedChooser(genes))

    def _own(self, genes: Genes) -> Genes:
        names = self._options.keys()
        wrong = sorted(names ^ genes.keys())
        if wrong:
            what = "lacks" if wrong[0] in names else "has"
            raise InputError(
                f"{what} gene {short_repr(wrong[0])}; those of space {self._space.name!r}: {', '.join(names)}"
            )
        self.net(genes)
        return genes

    def _of_net(self, net: Genotype, own: Mapping[str, Any], look: bool) -> Genes:
        net.check(self._image_size)
        if fits(own, self._options) and self.net(dict(own)).key == net.key:
            return dict(own)
        wanted, found = features(net), plain_genes(self._space, net) if net.stages else None
        if found is None and look:
            found = find_genes(self._space, lambda other: float(len(features(other) ^ wanted)))
        if found is None:
            raise InputError(f"is not in space {self._space.name!r}: no genes were found that give it")
        return found


def find_known_nets(
    start: StartWith, finder: GeneFinder, image_size: ImageSize, counts: Callable[[Path, Record], bool]
) -> KnownNets:
    """The nets to begin with, as genes; those that do not fit are left out.

    `counts`: says of a record of a run whether its net need not be trained again. Raises InputError if there is no such
    thing, or none of its nets fits.
    """
    run = find_run(start.run) if start.run else None
    candidates = _candidates(start, run, image_size)
    known: dict[str, Genes] = {}
    records, left_out = list[Record](), list[str]()
    for candidate in candidates:
        try:
            genes = finder.genes(candidate)
            known.setdefault(json.dumps(genes, sort_keys=True), genes)
        except InputError as error:
            left_out.append(f"{candidate.name} {error}")
    if not known:
        raise InputError(f"start-with: none of {len(candidates)} nets can be proposed: {left_out[0]}")
    if run:
        records = [r for r in read_records(run) if start.trial in (None, r.trial) and counts(run, r)]
        records = list(_with_genes(records, known, finder))
    taken = [record.genes for record in records]
    return KnownNets([genes for genes in known.values() if genes not in taken], records, run, left_out)


def _with_genes(records: Sequence[Record], known: Mapping[str, Genes], finder: GeneFinder) -> Iterator[Record]:
    """The records of nets of the space, each with its genes there; and baselines, which may be outside of it."""
    by_key = {candidate_key(finder.net(genes).key, genes): genes for genes in known.values()}
    for record in records:
        genes = by_key.get(record.trial_key)
        try:
            genes = genes or finder.genes(_of_record(record), look=False)
        except InputError:
            if record.kind != "baseline":
                continue
        yield replace(record, genes=genes or {})


def _candidates(start: StartWith, run: Path | None, image_size: ImageSize) -> list[Candidate]:
    if run:
        return [_of_record(record) for record in _front(run, start.trial)]
    if start.zoo:
        return [Candidate(f"net {name}", zoo.get(name, image_size)) for name in start.zoo]
    nets = nets_of_file(start.file) if start.file else start.nets
    named = ((f"net {number}", net) for number, net in enumerate(nets, start=1))
    return [Candidate(name, net) if isinstance(net, Genotype) else Candidate(name, None, net) for name, net in named]


def _front(run: Path, trial: int | None) -> list[Record]:
    records = {record.trial: record for record in read_records(run)}
    if trial is not None:
        if trial not in records:
            raise InputError(f"start-with: run {run.name!r} has no trial {trial}")
        return [records[trial]]
    board = leaderboard_of(run)
    if not board.front:
        raise InputError(f"start-with: run {run.name!r} has no front")
    return [records[row.trial] for row in board.front if row.kind != "reference"]


def _of_record(record: Record) -> Candidate:
    return Candidate(f"trial {record.trial}", Genotype.from_dict(record.genotype), record.genes)


def nets_of_file(path: Path) -> tuple[Genotype | Mapping[str, Any], ...]:
    """The genotypes or genes in a JSON file; InputError if it holds none."""
    try:
        return nets_of_json(str(path), path.read_bytes())
    except OSError as error:
        raise InputError(f"start-with: {short_repr(str(path))}: cannot be read ({error.strerror})") from None


def nets_of_json(where: str, text: str | bytes) -> tuple[Genotype | Mapping[str, Any], ...]:
    """A genotype, genes, or a list of such; `where` they stand, for messages. InputError if it is none."""
    try:
        value = parse_json(text)
    except ValueError as error:
        raise InputError(f"start-with: {short_repr(where)}: cannot be read ({error!s:.80})") from None
    rule = f"start-with: {where}: must hold genotypes or genes, which are objects"
    nets = convert(value if isinstance(value, list) else [value], list[dict[str, Any]], rule)
    if not nets:
        raise InputError(f"{rule}, got []")
    return tuple(_net_or_genes(number, net) for number, net in enumerate(nets, start=1))


def _net_or_genes(number: int, value: dict[str, Any]) -> Genotype | Mapping[str, Any]:
    if "stem" not in value:
        return value
    try:
        return Genotype.from_dict(value)
    except InputError as error:
        raise InputError(f"start-with: net {number}: {error}") from None


def noted_genes(facts: Mapping[str, Any], space: Space) -> list[Genes]:
    """Genes that run.json has noted of the nets that a search began with.

    Raises InputError if that are no genes of the space.
    """
    noted, options = facts.get("start_with", []), options_of(space)
    for genes in noted:
        if not fits(genes, options):
            raise InputError(f"run.json: start_with holds genes of another space, {short_repr(genes)}")
    return noted


def trained_alike(run: Path, record: Record, settings: Mapping[str, Any], steps: int) -> bool:
    """Whether a net of an earlier run was trained as one with these settings would be: alone and to the end."""
    theirs = read_settings(run).get("settings", {})
    same = all(name in theirs and theirs[name] == settings[name] for name in SAME)
    whole = record.status == Status.OK and record.budget.get("full") == record.budget.get("done") == steps
    return same and whole and record.weights == "alone" and record.kind in ("search", "baseline")


def taken_over(known: KnownNets, baselines: Sequence[Genotype], baseline_seeds: int) -> list[Record]:
    """The records of a new run that are those of an earlier one, numbered after the baselines that it may train.

    A baseline is taken over if it was trained with as many seeds.
    """
    assert known.run is not None
    numbers = {net.key: number for number, net in enumerate(baselines)}
    taken, last = list[Record](), len(baselines)
    for record in known.records:
        is_baseline = record.key in numbers and (record.kind == "baseline" or not tuned_values(record.genes))
        kind, number = ("baseline", numbers[record.key]) if is_baseline else ("search", last)
        if (kind == "baseline" and len(record.accuracies) < baseline_seeds) or (kind == "search" and not record.genes):
            continue
        last += kind == "search"
        source = f"{known.run.resolve().name}:{record.trial}"
        fields = {"started_at": "", "finished_at": now(), "rungs": [], "taken_from": record.taken_from or source}
        taken.append(replace(record, trial=number, kind=kind, **fields))
    return taken
