"""Budgets: nets trained for different ones, nets that still rose at the end of theirs, what a longer one would cost."""

from __future__ import annotations

import math
import shlex
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from ..render.tables import duration
from ..runs.record import Record
from ..runs.retrained import retrained
from ..runs.status import Status
from ..runs.store import as_argument, read_data_facts, read_settings
from .metric import OF_IMAGES, Metric
from .objectives import own_flops
from .stats import Noise, Row, count_nets

DEVIATIONS = 2  # of the noise that a rise must exceed
NEAR = 1 / 16  # of the budget: how far from its half a reading may lie
LONGER = 4  # times the steps, of the budget that is priced


def still_rose(
    record: Record, images: int, metric: Metric | None = None, seed_noise: Noise | None = None
) -> bool | None:
    """Whether a net's accuracy still rose over the last half of its training by more than the noise.

    That is, from the reading at half of the full budget to the last one by more than DEVIATIONS standard deviations of
    the difference of two accuracies p and q, each measured on so many images: sqrt((p (1 - p) + q (1 - q)) / images).
    Measured in docs/log.md: over a shorter part of a schedule that falls to zero, nets that four times the steps would
    make better do not rise either. Of a metric that is no share of all images no such formula is known: its deviation
    is that of two seeds, sqrt(2) x the seed noise, which is larger than that of one training's readings.

    Args:
        record: of the net; of several seeds its curve is the first one's.
        images: of the validation split; 0 if unknown.
        metric: what the curve holds the score of; None for accuracy.
        seed_noise: of the run, for the other metrics; None if unknown.

    Returns:
        None where it is unknown: images or the noise are, the net was not trained to the end, or its curve has no
        reading near half of the budget, as those of shared nets.
    """
    binomial = metric is None or metric.name in OF_IMAGES
    full = record.budget.get("full", 0)
    known = [(p["step"] or 0, accuracy) for p in record.curve if (accuracy := p.get("accuracy")) is not None]
    if not ((images if binomial else seed_noise) and full and known) or known[-1][0] != full:
        return None
    step, before = min(known, key=lambda reading: abs(2 * reading[0] - full))
    if abs(step / full - 0.5) > NEAR:
        return None
    after = known[-1][1]
    if seed_noise and not binomial:
        noise = math.sqrt(2) * seed_noise.at(after)[0]
    else:
        noise = math.sqrt(max(0.0, before * (1 - before) + after * (1 - after)) / images)
    return after - before > DEVIATIONS * noise


def budget_lines(rows: Sequence[Row]) -> list[str]:
    """A warning where nets that were trained for longer or shorter stand side by side; else nothing.

    Nets of a supernet are told by how they came by their weights: how long the polished ones were trained on differs.
    """
    budgets = Counter(
        f"on {row['weights']} weights"
        if row["weights"] in ("shared", "polished")
        else f"{row['budget_steps'] or '?'} steps{' on inherited weights' * (row['weights'] == 'inherited')}"
        for row in rows
    )
    if len(budgets) < 2:
        return []
    each = [f"{count_nets(n)} {budget}" for budget, n in budgets.items()]
    return [f"budgets differ, which is no fair comparison: {', '.join(each)}"]


def validation_images(folder: Path) -> int:
    """Images that the accuracies of a run are measured on; 0 if its run.json does not say."""
    known = read_settings(folder).get("data")
    return read_data_facts(folder).get("images", {}).get("val", 0) if known else 0


def count_rising(front: Sequence[Row]) -> str:
    """How many nets of a front still rose at their end; "" of an empty front."""
    rising, unknown = [row for row in front if row["rising"]], sum(row["rising"] is None for row in front)
    if not front:
        return ""
    if unknown == len(front):
        return "whether nets on the front still rose at the end of their training is unknown: no readings on the way"
    left = f" ({unknown} unknown)" * bool(unknown)
    if not rising:
        return f"no net on the front still rose at the end of its training{left}"
    steps = sorted({row["budget_steps"] for row in rising})
    end = " to ".join(f"{count:,}" for count in dict.fromkeys((steps[0], steps[-1])))
    of = f"{len(rising)} of {count_nets(len(front))}"
    return f"{of} on the front still rose at the end of {end} steps{left}: a front belongs to its budget"


@dataclass(frozen=True)
class LongerTraining:
    """Training for LONGER times the steps those nets of a front that still rose at their end."""

    nets: Sequence[Record]
    steps: int  # of each
    command: str

    @property
    def cost(self) -> str:
        """FLOPs and seconds of training each net once, by what its own training took; "" where that is not known."""
        each = [(r, r.budget.get("done", 0)) for r in self.nets]
        if not all(done and own_flops(r) for r, done in each):
            return ""
        flops = sum(own_flops(r) / done * self.steps for r, done in each)
        seconds = sum(r.seconds / max(1, len(r.accuracies)) / done * self.steps for r, done in each)
        device = ", ".join(sorted({r.device for r in self.nets if r.device})) or "the same device"
        return f"{flops:.2g} FLOPs" + f" (about {duration(seconds)} on {device}, as measured here)" * bool(seconds)


def longer_training(front: Sequence[Row], records: Sequence[Record], folder: Path) -> LongerTraining | None:
    """The longer training that a front calls for; None if no net rose, all were retrained so, or none can be.

    Args:
        front: rows of a run's leaderboard.
        records: of all nets of the run.
        folder: of the run.
    """
    trained = {r.trial: r for r in records if r.status == Status.OK}
    steps = LONGER * max((r.budget.get("full", 0) for r in trained.values() if r.weights == "alone"), default=0)
    done = {r.key for r in retrained(folder) if r.budget.get("full", 0) >= (1 - NEAR) * steps}  # epochs were rounded
    nets = [trained[row["trial"]] for row in front if row["rising"] and row["key"] not in done]
    epochs = (read_settings(folder).get("settings", {}).get("recipe") or {}).get("epochs")
    if not nets or not steps or not isinstance(epochs, (int, float)) or "://" in read_data_facts(folder)["name"]:
        return None  # a study has no recipe, and a URL is not opened again
    trials = ",".join(str(r.trial) for r in nets)
    how = f"--trials {trials} --epochs {LONGER * epochs:g} --seeds 1"
    return LongerTraining(nets, steps, f"alternas retrain {shlex.quote(as_argument(folder))} {how}")


def rising_line(front: Sequence[Row], longer: LongerTraining | None) -> str:
    """How many nets of a front still rose at their end, and what more steps would cost; "" of an empty front."""
    cost = f"; {LONGER} x the steps would cost {longer.cost}" if longer and longer.cost else ""
    return count_rising(front) + cost
