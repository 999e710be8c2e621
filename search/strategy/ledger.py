"""The ledger: what was proposed, what runs, what waits, what is known. No Ray, no torch.

States of a trial: proposed -> infeasible | duplicate | running; running -> parked (at a rung) |
ok | error | nan | oom | lost; parked -> running (promoted) | pruned (at the end). Whatever runs
nets asks `next_job`, and answers with `report` or `lost`. Every end is first appended to the
records, which are the truth, then told to the Optuna study, which is the strategy's memory.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ...archs import Cost, Genotype
from ...results.record import FREE, Record
from ...results.store import Store
from ...spaces import Genes, Memo, RandomChooser, Replay, Space, plain_genes
from ..settings import Settings
from ..training.job import MOST_LOSSES, Job, Outcome
from .candidate import Candidate
from .heirs import SHARE, Ancestor, Heirs
from .ladder import Rungs, Standing, ladder
from .memory import Memory, Orphan, told_as
from .screen import Screen

MOST_FREE_DRAWS = 500  # proposals in a row that need no training, before the space counts as used up
STUCK = (
    10  # such proposals in a row after which the next are uniform draws: a sampler that has converged repeats itself
)


@dataclass(frozen=True)
class Terms:
    """What a ledger works under.

    Attributes:
        settings: of the search.
        trials: distinct nets to start training, baselines not counted.
        steps: the full budget of a net, in optimiser steps.
        price: static cost of a net on the data at hand.
        common: fields that every record of the run shares.
        folder: of the run, for checkpoints and weights.
    """

    settings: Settings
    trials: int
    steps: int
    price: Callable[[Genotype], Cost]
    common: dict[str, Any]
    folder: Path


class Ledger:
    """One search's bookkeeping. Opened on an existing run, it takes up where that one stopped."""

    def __init__(self, terms: Terms, space: Space, store: Store, memory: Memory) -> None:
        self.terms, self.space, self.store, self.memory = terms, space, store, memory
        settings = terms.settings
        self.rungs = Rungs(ladder(settings.ladder, settings.rungs, settings.eta), terms.steps)
        self.heirs = Heirs(terms.folder, settings.recipe.batch) if settings.inherit else None
        self.live: dict[int, Candidate] = {}
        self.screen = Screen(settings.prescreen, settings.signal, self.live) if settings.prescreen > 1 else None
        self.exhausted = False
        self._again: deque[int] = deque()  # to run before anything new: retries, orphans, baselines, further seeds
        self._known: dict[str, Record] = {}
        self._trained = 0
        for record in store.records:
            self._learn(record)
        self.baselines = self._chosen_baselines()
        self._seat_baselines()
        self._adopt_orphans()

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self._trained + sum(c.kind == "search" and not c.screening for c in self.live.values())

    @property
    def done(self) -> bool:
        """Whether nothing is left to run. Meaningful once `next_job` has returned None."""
        return all(c.waits for c in self.live.values())

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and self._all_proposed

    def next_job(self) -> Job | None:
        """What a free worker should do: retries, orphans and baselines, promotions, new proposals."""
        if self._again:
            return self._job(self.live[self._again.popleft()])
        candidate = self._promote() or self._propose()
        return None if candidate is None else self._job(candidate)

    def report(self, outcome: Outcome) -> Record | None:
        """Take a job's outcome. Returns the record if that was the end of the net, None if it waits."""
        candidate = self.live[outcome.trial]
        candidate.signals |= outcome.signals
        if candidate.measuring:  # and if that failed, it has no signal
            candidate.measuring = False
            return None
        candidate.last = outcome
        if outcome.status != "ok":
            return self._end(candidate, outcome.status, outcome.error)
        assert outcome.accuracy is not None
        if outcome.step >= candidate.steps:
            return self._trained_whole(candidate, outcome)
        rung = len(candidate.reached)
        self.memory.reached(candidate.trial, rung, outcome.accuracy)
        candidate.reached.append(outcome.accuracy)
        candidate.waits = True
        self._stand(rung, candidate.trial, outcome.accuracy, candidate.cost.totals(), True)
        return None

    def lost(self, trial: int) -> Record | None:
        """Take the death of the worker that ran `trial`: it is tried again, at most twice."""
        candidate = self.live[trial]
        candidate.losses += 1
        if candidate.losses > MOST_LOSSES:
            return self._end(candidate, "lost", f"its worker died {candidate.losses} times")
        self._again.appendleft(trial)
        return None

    def close(self) -> list[Record]:
        """End the search: parked nets become pruned. Returns their records."""
        parked = [c for c in self.live.values() if c.waits]
        return [self._end(candidate, "pruned") for candidate in parked]

    def _trained_whole(self, candidate: Candidate, outcome: Outcome) -> Record | None:
        """A net was trained at full budget: that is its end, or it is trained with the next seed."""
        settings = self.terms.settings
        if not candidate.trained and outcome.accuracy is not None:
            candidate.reached.append(outcome.accuracy)
        candidate.trained[settings.seed + len(candidate.trained)] = outcome
        if len(candidate.trained) < settings.repeats:
            self._again.append(candidate.trial)
            return None
        return self._end(candidate, "ok")

    def _job(self, candidate: Candidate) -> Job:
        candidate.waits = False
        settings, folder = self.terms.settings, self.terms.folder
        repeat = len(candidate.trained)
        name = candidate.net.key + (f"-{settings.seed + repeat}" if repeat else "")
        return Job(
            candidate.trial,
            candidate.net,
            settings.recipe,
            settings.seed + repeat,
            until=0 if candidate.measuring else candidate.until,
            steps=candidate.steps,
            checkpoint=str(folder / "checkpoints" / f"{name}.pt"),
            weights=str(folder / "weights" / f"{name}.safetensors"),
            keep=settings.keep,
            start=candidate.start,
            signals=self._wanted(candidate),
        )

    def _wanted(self, candidate: Candidate) -> tuple[str, ...]:
        """Signals to measure with the next job."""
        settings = self.terms.settings
        if candidate.measuring:
            return (settings.signal,)
        fresh = not candidate.reached and not candidate.trained
        return tuple(name for name in settings.signals if fresh and name not in candidate.signals)

    def _promote(self) -> Candidate | None:
        """The first that the ladder sends on, from the highest rung down."""
        found = self.rungs.next(self._all_proposed or not self.memory.ready)
        if found is None:
            return None
        rung, trial = found
        self.rungs.leave(rung, trial)
        self.memory.promoted(trial, rung + 1)
        self.live[trial].promoted = rung + 1
        return self.live[trial]

    def _stand(self, rung: int, trial: int, accuracy: float, cost: dict[str, int], waits: bool) -> None:
        self.rungs.reach(rung, Standing(trial, accuracy, cost[self.terms.settings.objective], waits))

    @property
    def _all_proposed(self) -> bool:
        return self.exhausted or self.started + (self.screen.open if self.screen else 0) >= self.terms.trials

    def _propose(self) -> Candidate | None:
        """A new net to train, or to measure; None if none is wanted or left."""
        candidate = self._screened(self.screen) if self.screen else self._new()
        if candidate and self.heirs and not candidate.measuring:
            self._endow(candidate, self.heirs.nearest(candidate.net))
        return candidate

    def _screened(self, screen: Screen) -> Candidate | None:
        """The best of a group that is measured; else another to measure."""
        while True:
            if (group := screen.finished()) is not None:
                if group:
                    return self._chosen(group)
                continue
            candidate = self._drawn() if screen.filling else self._new()
            if candidate is None and not screen.filling:
                return None
            if candidate is None:
                screen.close()
                continue
            screen.add(candidate)
            self.memory.screening(candidate.trial, True)
            if candidate.measuring:
                return candidate

    def _chosen(self, group: list[Candidate]) -> Candidate:
        """The first of a group; the others end here."""
        best, *others = group
        for candidate in others:
            self._end(candidate, "screened", f"trial {best.trial} has the higher {self.terms.settings.signal}")
        best.screening = False
        self.memory.screening(best.trial, False)
        return best

    def _new(self) -> Candidate | None:
        """A net that must be trained; None if none is wanted or left."""
        return None if self._all_proposed else self._drawn()

    def _drawn(self) -> Candidate | None:
        """Ask the strategy until it proposes a net that is not known; None if it has none left."""
        for attempt in range(MOST_FREE_DRAWS):
            if attempt >= STUCK:
                self.memory.start_with([self._uniform(attempt)])
            if not self.memory.ready:
                self.exhausted = self.done  # no news can come
                return None
            candidate = self._draw()
            if self._admit(candidate):
                return candidate
        self.exhausted = True
        return None

    def _admit(self, candidate: Candidate) -> bool:
        """Let a net through the static gate, or end it at once as infeasible or duplicate."""
        broken, twin = self._over_limit(candidate.cost), self._twin(candidate.net.key)
        if broken:
            self.memory.violates(candidate.trial, broken)
            costs = ", ".join(f"{name} {getattr(candidate.cost, name)}" for name in broken)
            self._end(candidate, "infeasible", f"over the limit: {costs}")
        elif twin is not None:
            self._end(candidate, "duplicate", f"same net as trial {twin.trial}")
        else:
            self.live[candidate.trial] = candidate
        return candidate.trial in self.live

    def _twin(self, key: str) -> Record | Candidate | None:
        """The finished or running trial of the same net."""
        return self._known.get(key) or next((c for c in self.live.values() if c.net.key == key), None)

    def _uniform(self, attempt: int) -> Genes:
        """Genes drawn at random, from the seed and how many nets were started."""
        memo = Memo(RandomChooser(f"{self.terms.settings.seed}/{self.started}/{attempt}"))
        self.space.sample(memo)
        return memo.genes

    def _draw(self) -> Candidate:
        trial, chooser = self.memory.ask()
        memo = Memo(chooser)
        net = self.space.sample(memo)
        self.memory.drawn(trial, net.key)
        return self._candidate(trial, "search", net, memo.genes)

    def _endow(self, candidate: Candidate, ancestor: Ancestor | None) -> None:
        """Have a net start from the weights of `ancestor`, and train for less."""
        if ancestor is not None:
            self.memory.inherits(candidate.trial, ancestor.trial)
            stops = self.rungs.ladder.rungs(max(1, round(SHARE * self.terms.steps)))
            candidate.start, candidate.stops, candidate.heritage = ancestor.start, stops, ancestor.heritage

    def _candidate(self, trial: int, kind: str, net: Genotype, genes: Genes) -> Candidate:
        return Candidate(trial, kind, net, genes, self.terms.price(net), self.rungs.steps)

    def _over_limit(self, cost: Cost) -> dict[str, float]:
        """For each limit broken, by which share."""
        limits = self.terms.settings.limits
        return {k: getattr(cost, k) / most - 1 for k, most in limits.items() if getattr(cost, k) > most}

    def _end(self, candidate: Candidate, status: str, error: str = "") -> Record:
        twin = self._known.get(candidate.net.key) if status == "duplicate" else None
        accuracy = twin.accuracy if twin else candidate.accuracy if status in ("ok", "pruned") else None
        record = candidate.record(status, self.terms.common, error, accuracy)
        if status == "infeasible":
            record.excess.update(self._over_limit(candidate.cost))
        self.store.append(record)
        self.live.pop(candidate.trial, None)
        self._learn(record)
        if status not in FREE:
            for file in (self.terms.folder / "checkpoints").glob(f"{record.key}*.pt"):
                file.unlink()
        self.memory.tell(record, told_as(record, self._known), self.terms.settings.objective)
        return record

    def _learn(self, record: Record) -> None:
        """Take in what a record says for what comes after it."""
        if record.status in FREE:
            return
        self._known[record.key] = record
        self._trained += record.kind == "search"
        if self.heirs:
            self.heirs.learn(record)
        for rung, passed in enumerate(record.rungs[: len(self.rungs.steps) - 1]):
            if record.kind == "search":
                self._stand(rung, record.trial, passed["accuracy"], record.cost, False)

    def _chosen_baselines(self) -> list[Genotype]:
        """The plain ResNets within the limits, and the cheapest beyond, which ends the curve that gains refer to."""
        nets = self.space.baselines()
        over = [bool(self._over_limit(self.terms.price(net))) for net in nets]
        return list(nets[: over.index(True) + 1] if True in over else nets)

    def _seat_baselines(self) -> None:
        """Baselines hold the first trial numbers; those without a record are trained before all else."""
        have = {r.trial for r in self.store.records}
        for number, net in enumerate(self.space.baselines()):
            if number >= len(self.baselines):
                self.memory.fail(number)
            elif number not in have:
                self.live[number] = self._candidate(number, "baseline", net, plain_genes(self.space, net) or {})
                self._again.append(number)

    def _adopt_orphans(self) -> None:
        """Take over what an earlier driver left running: finish the telling, or run it again."""
        ended = {r.trial: r for r in self.store.records}
        for orphan in self.memory.orphans():
            if orphan.trial in ended:
                record = ended[orphan.trial]
                self.memory.tell(record, told_as(record, self._known), self.terms.settings.objective)
            elif not orphan.key or orphan.screening:
                self.memory.fail(orphan.trial)  # died while being drawn or measured
            else:
                self._adopt(orphan)

    def _adopt(self, orphan: Orphan) -> None:
        trial, reached = orphan.trial, orphan.reached
        candidate = self._candidate(trial, "search", self.space.sample(Replay(orphan.genes)), orphan.genes)
        if self.heirs and orphan.parent is not None:
            self._endow(candidate, self.heirs.of(orphan.parent))
        candidate.reached, candidate.promoted = reached, orphan.aim
        candidate.waits = len(reached) > orphan.aim
        at = candidate.stops[len(reached) - 1] if reached else 0
        candidate.last = Outcome(trial, "ok", at, reached[-1] if reached else math.nan)
        if not self._admit(candidate):
            return
        for rung, accuracy in enumerate(reached):
            self._stand(rung, trial, accuracy, candidate.cost.totals(), candidate.waits and rung == len(reached) - 1)
        if not candidate.waits:
            self._again.append(trial)
