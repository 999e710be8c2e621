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
from ...spaces import Genes, Memo, Replay, Space
from ..settings import Settings
from ..training.job import MOST_LOSSES, Job, Outcome
from .candidate import Candidate
from .ladder import Ladder, Standing
from .memory import Memory, told_as

MOST_FREE_DRAWS = 500  # proposals in a row that need no training, before the space counts as used up


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

    def __init__(self, terms: Terms, space: Space, ladder: Ladder, store: Store, memory: Memory) -> None:
        self.terms, self.space, self.ladder, self.store, self.memory = terms, space, ladder, store, memory
        self.rungs = ladder.rungs(terms.steps)
        self.live: dict[int, Candidate] = {}
        self.exhausted = False
        self._retry: deque[int] = deque()
        self._again: deque[int] = deque()
        self._known = {r.key: r for r in store.records if r.status not in FREE}
        self._trained = sum(r.kind == "search" and r.status not in FREE for r in store.records)
        self.baselines = self._chosen_baselines()
        self._seat_baselines()
        self._adopt_orphans()

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self._trained + sum(c.kind == "search" for c in self.live.values())

    @property
    def done(self) -> bool:
        """Whether nothing is left to run. Meaningful once `next_job` has returned None."""
        return all(c.waits for c in self.live.values())

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and self.started >= self.terms.trials

    def next_job(self) -> Job | None:
        """What a free worker should do: retries, orphans and baselines, promotions, new proposals."""
        if self._retry:
            return self._job(self.live[self._retry.popleft()])
        if self._again:
            return self._job(self.live[self._again.popleft()])
        candidate = self._promote() or self._propose()
        return None if candidate is None else self._job(candidate)

    def report(self, outcome: Outcome) -> Record | None:
        """Take a job's outcome. Returns the record if that was the end of the net, None if it waits."""
        candidate = self.live[outcome.trial]
        candidate.last = outcome
        if outcome.status != "ok":
            return self._end(candidate, outcome.status, outcome.error)
        assert outcome.accuracy is not None
        if outcome.step >= self.terms.steps:
            candidate.reached.append(outcome.accuracy)
            return self._end(candidate, "ok", accuracy=outcome.accuracy)
        self.memory.reached(candidate.trial, len(candidate.reached), outcome.accuracy)
        candidate.reached.append(outcome.accuracy)
        candidate.waits = True
        return None

    def lost(self, trial: int) -> Record | None:
        """Take the death of the worker that ran `trial`: it is tried again, at most twice."""
        candidate = self.live[trial]
        candidate.losses += 1
        if candidate.losses > MOST_LOSSES:
            return self._end(candidate, "lost", f"its worker died {candidate.losses} times")
        self._retry.append(trial)
        return None

    def close(self) -> list[Record]:
        """End the search: parked nets become pruned. Returns their records."""
        parked = [c for c in self.live.values() if c.waits]
        return [self._end(candidate, "pruned", accuracy=candidate.reached[-1]) for candidate in parked]

    def _job(self, candidate: Candidate) -> Job:
        candidate.waits = False
        rung = len(candidate.reached) if candidate.kind == "search" else -1
        settings, folder, key = self.terms.settings, self.terms.folder, candidate.net.key
        return Job(
            candidate.trial,
            candidate.net,
            settings.recipe,
            settings.seed,
            until=self.rungs[rung],
            steps=self.terms.steps,
            checkpoint=str(folder / "checkpoints" / f"{key}.pt"),
            weights=str(folder / "weights" / f"{key}.safetensors"),
            keep=settings.keep,
        )

    def _promote(self) -> Candidate | None:
        """The first that the ladder sends on, from the highest rung down."""
        for rung in reversed(range(len(self.rungs) - 1)):
            chosen = self.ladder.promote(self._standings(rung), self._all_proposed)
            if chosen is not None:
                self.memory.promoted(chosen, rung + 1)
                return self.live[chosen]
        return None

    def _standings(self, rung: int) -> list[Standing]:
        """All nets of the search that ever reached `rung`, finished ones included."""
        cost, step = self.terms.settings.objective, self.rungs[rung]
        here = [
            Standing(c.trial, c.reached[rung], getattr(c.cost, cost), c.waits and len(c.reached) == rung + 1)
            for c in self.live.values()
            if c.kind == "search" and len(c.reached) > rung
        ]
        for r in self.store.records:
            at = [p["accuracy"] for p in r.curve if p["step"] == step and p["accuracy"] is not None]
            if r.kind == "search" and r.rung > rung and at:
                here.append(Standing(r.trial, at[0], r.cost[cost], False))
        return here

    @property
    def _all_proposed(self) -> bool:
        return self.exhausted or self.started >= self.terms.trials

    def _propose(self) -> Candidate | None:
        """Ask the strategy until it proposes a net that must be trained; None if none is wanted or left."""
        if self._all_proposed:
            return None
        for _ in range(MOST_FREE_DRAWS):
            candidate = self._draw()
            if self._admit(candidate):
                return candidate
        self.exhausted = True
        return None

    def _admit(self, candidate: Candidate) -> bool:
        """Let a net through the static gate, or end it at once as infeasible or duplicate."""
        broken, twin = self._over_limit(candidate.cost), self._twin(candidate.net.key)
        if broken:
            self.memory.over_limit(candidate.trial, broken)
            costs = ", ".join(f"{name} {getattr(candidate.cost, name)}" for name in broken)
            self._end(candidate, "infeasible", f"over the limit: {costs}")
        elif twin is not None:
            accuracy = twin.accuracy if isinstance(twin, Record) else None
            self._end(candidate, "duplicate", f"same net as trial {twin.trial}", accuracy)
        else:
            self.live[candidate.trial] = candidate
        return candidate.trial in self.live

    def _twin(self, key: str) -> Record | Candidate | None:
        """The finished or running trial of the same net."""
        return self._known.get(key) or next((c for c in self.live.values() if c.net.key == key), None)

    def _draw(self) -> Candidate:
        trial, chooser = self.memory.ask()
        memo = Memo(chooser)
        net = self.space.sample(memo)
        self.memory.drawn(trial, net.key)
        return self._candidate(trial, "search", net, memo.genes)

    def _candidate(self, trial: int, kind: str, net: Genotype, genes: Genes) -> Candidate:
        return Candidate(trial, kind, net, genes, self.terms.price(net))

    def _over_limit(self, cost: Cost) -> dict[str, float]:
        """For each limit broken, by which share."""
        limits = self.terms.settings.limits
        return {k: getattr(cost, k) / most - 1 for k, most in limits.items() if getattr(cost, k) > most}

    def _end(self, candidate: Candidate, status: str, error: str = "", accuracy: float | None = None) -> Record:
        record = candidate.record(status, self.terms.common, error, accuracy)
        self.store.append(record)
        self.live.pop(candidate.trial, None)
        if status not in FREE:
            self._known[record.key] = record
            self._trained += candidate.kind == "search"
            (self.terms.folder / "checkpoints" / f"{record.key}.pt").unlink(missing_ok=True)
        self._tell(record)
        return record

    def _tell(self, record: Record) -> None:
        """Tell the study what its trial came to."""
        if record.kind == "search":
            self.memory.tell(record.trial, told_as(record, self._known), self.terms.settings.objective)

    def _chosen_baselines(self) -> list[Genotype]:
        """The plain ResNets within the limits, and the cheapest beyond, which ends the curve that gains refer to."""
        nets = self.space.baselines()
        over = [bool(self._over_limit(self.terms.price(net))) for net in nets]
        return list(nets[: over.index(True) + 1] if True in over else nets)

    def _seat_baselines(self) -> None:
        """Baselines hold the first trial numbers; those without a record are trained before all else."""
        self.memory.reserve(len(self.space.baselines()))
        have = {r.trial for r in self.store.records}
        for number, net in enumerate(self.baselines):
            if number not in have:
                self.live[number] = self._candidate(number, "baseline", net, {})
                self._again.append(number)

    def _adopt_orphans(self) -> None:
        """Take over what an earlier driver left running: finish the telling, or run it again."""
        ended = {r.trial: r for r in self.store.records}
        for orphan in self.memory.orphans():
            if orphan.trial in ended:
                self._tell(ended[orphan.trial])
            elif not orphan.key:
                self.memory.fail(orphan.trial)  # died while being drawn
            else:
                self._adopt(orphan.trial, orphan.genes, orphan.reached, orphan.aim)

    def _adopt(self, trial: int, genes: Genes, reached: list[float], aim: int) -> None:
        candidate = self._candidate(trial, "search", self.space.sample(Replay(genes)), genes)
        candidate.reached = reached
        candidate.waits = len(reached) > aim
        candidate.last = Outcome(trial, "ok", self.rungs[len(reached) - 1] if reached else 0, _last(reached))
        if self._admit(candidate) and not candidate.waits:
            self._again.append(trial)


def _last(values: list[float]) -> float:
    return values[-1] if values else math.nan
