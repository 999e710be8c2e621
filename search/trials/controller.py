"""`SearchController`: what was proposed, what runs, what waits, what is known. No Ray, no torch.

States of a trial: proposed -> infeasible | duplicate | running; running -> paused (at a
rung) | ok | error | nan | oom | lost; paused -> running (promoted) | pruned (at the end). Whatever runs
nets asks `next_job`, and answers with `report` or `lost`. Every end is first appended to the
records, which are the truth, then told to the Optuna study, which is the strategy's memory.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Sequence

from ...archs import Genotype
from ...results.runs.record import Record, now
from ...results.runs.store import Store
from ...spaces import FixedChooser, Space, plain_genes
from ..samplers.context import candidate_baselines
from ..training.artifact_sync import collect_outputs, provide_inputs
from ..training.job import MAX_RETRIES, Job, JobResult, Timing, check_disk, note_of, of_note
from .baselines import BASELINE_SEEDS, choose_baselines
from .proposer import Proposer
from .state import SearchContext, SearchState
from .study import StudyAdapter, UnfinishedTrial
from .trial import Trial

log = logging.getLogger("alternas")


class SearchController:
    """One search's bookkeeping. Opened on an existing run, it takes up where that one stopped."""

    def __init__(self, terms: SearchContext, space: Space, store: Store, memory: StudyAdapter) -> None:
        self.terms, self.space, self.store, self.memory = terms, space, store, memory
        self.books = SearchState(terms, store, memory)
        self.source = Proposer(self.books, space)
        self.live = self.books.live
        self._again: deque[int] = deque()  # to run before anything new: retries, orphans, baselines, further seeds
        seats = candidate_baselines(terms.ground(space))
        self.baselines = choose_baselines(seats, space, terms)
        self._seat_baselines(seats)
        self._adopt_orphans()

    @property
    def started(self) -> int:
        """Distinct nets of the search that have started training, finished ones included."""
        return self.books.started

    @property
    def exhausted(self) -> bool:
        """Whether the strategy or the space has no new net to give."""
        return self.source.exhausted

    @property
    def done(self) -> bool:
        """Whether nothing is left to run. Meaningful once `next_job` has returned None."""
        return self.books.still

    @property
    def complete(self) -> bool:
        """Whether a search of this many trials has ended already."""
        return not self.live and self.source.dry

    def next_job(self) -> Job | None:
        """What a free worker should do: retries, orphans and baselines, promotions, new proposals."""
        if self._again:
            return self._job(self.live[self._again.popleft()])
        candidate = self._promote() or self.source.next()
        return None if candidate is None else self._job(candidate)

    def report(self, outcome: JobResult) -> Record | None:
        """Take a job's outcome. Returns the record if that was the end of the net, None if it waits."""
        check_disk(outcome)
        if outcome.status == "lost":
            log.warning("trial %d: %s", outcome.trial, outcome.error)
            return self._retry(outcome.trial, f"{outcome.error};")
        candidate = self.live[outcome.trial]
        candidate.began = candidate.began or now(outcome.seconds)
        if outcome.latency and self.terms.latencies:
            self.terms.latencies.take(candidate.net, outcome.latency)
            self._again.appendleft(candidate.trial)
            return None
        if candidate.leg:
            collect_outputs(candidate.leg, outcome)
        candidate.last = outcome
        if outcome.status != "ok":
            return self.books.end(candidate, outcome.status, outcome.error)
        if outcome.step >= candidate.steps:
            return self._trained_whole(candidate, outcome)
        assert outcome.accuracy is not None
        note = note_of(outcome) | {"began": candidate.began}
        self.memory.reached(candidate.trial, len(candidate.reached), outcome.accuracy, note)
        candidate.reached.append(outcome.accuracy)
        candidate.waits = True
        self.books.stand(candidate, len(candidate.reached) - 1, True)
        return None

    def lost(self, trial: int) -> Record | None:
        """Take the death of the worker that ran `trial`: it is tried again, at most twice."""
        return self._retry(trial, "its worker died")

    def close(self) -> list[Record]:
        """End the search: parked nets become pruned. Returns their records."""
        parked = [c for c in self.live.values() if c.waits]
        return [self.books.end(candidate, "pruned") for candidate in parked]

    def _retry(self, trial: int, why: str) -> Record | None:
        """Try a net again, or end it; but none is ended for a depot that is out of the driver's reach too."""
        candidate = self.live[trial]
        candidate.losses += 1
        if candidate.losses > MAX_RETRIES:
            if self.terms.depot:
                self.terms.depot.check()
            return self.books.end(candidate, "lost", f"{why} {candidate.losses} times")
        self._again.appendleft(trial)
        return None

    def _trained_whole(self, candidate: Trial, outcome: JobResult) -> Record | None:
        """A net was trained at full budget: that is its end, or it is trained with the next seed."""
        settings = self.terms.settings
        if not candidate.trained and outcome.accuracy is not None:
            candidate.reached.append(outcome.accuracy)
        candidate.trained[settings.seed + len(candidate.trained)] = outcome
        least = 1 if candidate.kind == "search" else BASELINE_SEEDS
        if len(candidate.trained) < max(least, settings.repeats):
            self._again.append(candidate.trial)
            return None
        return self.books.end(candidate, "ok")

    def _job(self, candidate: Trial) -> Job:
        candidate.waits = False
        settings, folder = self.terms.settings, self.terms.folder
        repeat = len(candidate.trained)
        name = candidate.net.key + (f"-{settings.seed + repeat}" if repeat else "")
        candidate.leg = Job(
            candidate.trial,
            candidate.net,
            settings.recipe,
            settings.seed + repeat,
            until=candidate.until,
            steps=candidate.steps,
            checkpoint=str(folder / "checkpoints" / f"{name}.pt"),
            weights=str(folder / "weights" / f"{name}.safetensors"),
            keep=settings.save_weights_at,
            start=candidate.start,
            timing=self._timing(candidate),
            limit=max(1.0, 60 * self.terms.effort.trial_minutes - candidate.seconds_taken),
            depot=self.terms.depot,
        )
        return provide_inputs(candidate.leg)

    def _timing(self, candidate: Trial) -> Timing | None:
        """How to measure the latency of a net that has none, before it is trained."""
        latencies = self.terms.latencies
        wanted = latencies and candidate.net.key not in latencies.known
        return latencies.timing if latencies and wanted else None

    def _promote(self) -> Trial | None:
        """The first that the scheduler sends on, from the highest rung down."""
        if self.books.used_up:
            return None
        found = self.books.rungs.next(self.source.dry or not self.memory.ready)
        if found is None:
            return None
        rung, trial = found
        self.books.rungs.leave(rung, trial)
        self.memory.promoted(trial, rung + 1)
        self.live[trial].promoted = rung + 1
        return self.live[trial]

    def _seat_baselines(self, seats: Sequence[Genotype]) -> None:
        """Baselines hold the first trial numbers; those without a record are trained before all else."""
        have = {r.trial for r in self.store.records}
        for number, net in enumerate(seats):
            if number >= len(self.baselines):
                self.memory.fail(number)
            elif number not in have:
                genes = plain_genes(self.space, net) or {}
                self.live[number] = self.source.candidate(number, "baseline", net, genes)
                self._again.append(number)

    def _adopt_orphans(self) -> None:
        """Take over what an earlier driver left running: finish the telling, or run it again."""
        ended = {r.trial: r for r in self.store.records}
        for orphan in self.memory.orphans():
            if orphan.trial in ended:
                self.books.tell(ended[orphan.trial])
            elif not orphan.key:
                self.memory.fail(orphan.trial)  # died while being drawn
            else:
                self._adopt(orphan)

    def _adopt(self, orphan: UnfinishedTrial) -> None:
        trial, reached, heirs = orphan.trial, orphan.reached, self.books.heirs
        candidate = self.source.candidate(trial, "search", self.space.sample(FixedChooser(orphan.genes)), orphan.genes)
        if heirs and orphan.parent is not None:
            self.source.endow(candidate, heirs.of(orphan.parent))
        candidate.reached, candidate.promoted, candidate.began = reached, orphan.aim, orphan.note.get("began", "")
        candidate.waits = len(reached) > orphan.aim
        at = candidate.stops[len(reached) - 1] if reached else 0
        known = reached[-1] if reached else math.nan
        candidate.last = of_note(trial, known, orphan.note) if orphan.note else JobResult(trial, "ok", at, known)
        if not self.source.admit(candidate):
            return
        for rung in range(len(reached)):
            self.books.stand(candidate, rung, candidate.waits and rung == len(reached) - 1)
        if not candidate.waits:
            self._again.append(trial)
