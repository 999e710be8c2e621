"""Runs that nothing was trained for: folders with run.json and as many records as asked for."""

import json
import math
import random
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from statistics import fmean
from typing import Any

from alternas.archs import Genotype, static_cost, zoo
from alternas.results.ranking.ranked_net import RankedNet
from alternas.spaces import RandomChooser, RecordingChooser, Space, get

STEPS = (4, 8, 16, 32)
RECIPE = {"name": "smoke", "epochs": 2.0, "batch_size": 128, "augment": {"flip": False}}
DATA = {
    "name": "digits", "image_size": [8, 8], "in_chans": 1, "classes": [str(i) for i in range(10)], "mean": [4.9],
    "std": [6.0],
}  # fmt: skip
NET = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
COMMAND = ["/usr/bin/alternas", "search", "all", "--name", "a run", "--scheduler", "mo-asha"]


def made_run(folder: Path, records: list[dict[str, Any]] | None, ended: bool = False, **told: Any) -> Path:
    """A run's folder with these records, or with its log as it is; `told` goes into run.json."""
    folder.mkdir(parents=True, exist_ok=True)
    settings = {"space": "all", "strategy": "random", "scheduler": "mo-asha", "objective": "macs", "recipe": RECIPE}
    facts = {"format": 4, "settings": settings, "trials": 8, "command": COMMAND, "data": DATA}
    facts |= {"versions": {"python": "3.11"}}
    (folder / "run.json").write_text(json.dumps(facts | told), encoding="utf-8")
    if records is not None:
        (folder / "records.jsonl").write_text("".join(json.dumps(row) + "\n" for row in records), encoding="utf-8")
    if ended:
        with (folder / "records.jsonl").open("a", encoding="utf-8") as log:
            log.write('{"event": "ended", "trial": 0}\n')
    return folder


def measured(key: str, trial: int = 0, **numbers: Any) -> str:
    """A line of a run's log: the net of this key was measured."""
    return json.dumps({"event": "measured", "trial": trial, "net": key, "result": numbers}) + "\n"


BANK = {"total_steps": 8, "attempts": 0, "curve": []}


def add_bank(folder: Path, step: int, **state: Any) -> None:
    """Append a state of the bank's training to a run's log."""
    with (folder / "records.jsonl").open("a", encoding="utf-8") as log:
        log.write(json.dumps({"event": "bank", "trial": 0, "step": step, "result": BANK | state}) + "\n")


def add_measured(folder: Path, rows: Sequence[dict[str, Any]]) -> Path:
    """Append measurements, each with its net's key, to a run's log."""
    with (folder / "records.jsonl").open("a", encoding="utf-8") as log:
        log.writelines(measured(**row) for row in rows)
    return folder


def drawn_records(count: int, seed: int = 0, stops: bool = True) -> list[dict[str, Any]]:
    """The baselines and random nets of space `all` at 8 px, as a search leaves them, with a scheduler or without."""
    space, draw = get("all", 8), random.Random(seed)
    plain = [space.baselines()[i] for i in (2, 4, 6, 7)]  # what a search of such nets trains without a limit
    rows = [record(i, net, {}, draw, kind="baseline") for i, net in enumerate(plain)]
    while len(rows) < count:
        rows.append(record(len(rows), *_drawn(space, draw.randrange(2000)), draw, stops=stops))
    return rows[:count]


@cache
def _drawn(space: Space, seed: int) -> tuple[Genotype, dict[str, Any]]:
    chooser = RecordingChooser(RandomChooser(seed))
    return space.sample(chooser), dict(chooser.genes)


def record(
    trial: int, net: Genotype, genes: dict[str, Any], draw: random.Random, kind: str = "search", stops: bool = True
) -> dict[str, Any]:
    """One record, of a net that came through as many rungs as chance has it."""
    cost = static_cost(net, 10, 8, 1)
    best = 0.9 - 2 / math.log(cost.macs) ** 1.2 + draw.gauss(0, 0.03)
    rungs = len(STEPS) if kind == "baseline" or not stops else min(len(STEPS), 1 + int(draw.expovariate(0.7)))
    curve = [
        {"step": step, "loss": 1 / step, "accuracy": round(best * (1 - 1 / (step + 1)), 6)}
        for step in range(1, STEPS[rungs - 1] + 1)
    ]
    reached = [
        {"step": step, "accuracy": curve[step - 1]["accuracy"], "promoted": i + 1 < rungs}
        for i, step in enumerate(STEPS[:rungs])
    ]
    found = {"format": 4, "trial": trial, "kind": kind, "family": net.family, "key": net.key, "genotype": net.to_dict()}
    found |= {"genes": genes, "cost": cost.totals(), "status": "ok" if rungs == len(STEPS) else "pruned"}
    found |= {"accuracy": curve[-1]["accuracy"], "curve": curve, "rung": rungs, "rungs": reached, "recipe": RECIPE}
    found |= {"budget": {"full": STEPS[-1], "done": STEPS[rungs - 1]}, "seconds": 0.1 * STEPS[rungs - 1]}
    return found | {"device": "cpu"}


def net_row(trial: int, net: Genotype = NET, **more: Any) -> dict[str, Any]:
    """A line of records.jsonl, of a net that was trained to its end."""
    row = {"format": 4, "trial": trial, "kind": "search", "family": net.family, "key": net.key}
    row |= {"genotype": net.to_dict(), "genes": {}, "status": "ok"}
    return row | {"cost": {"params": 900, "macs": 40_000, "activation_bytes": 100}} | more


def ranked_net(trial: int, accuracy: float, macs: int = 10, **more: Any) -> RankedNet:
    """A net of a leaderboard."""
    about = {"kind": "search", "family": "resnet", "label": "resnet", "key": f"net{trial}", "weights": "alone"}
    about |= {"sd": None, "seeds": 1, "folds": [], "costs": {"macs": macs}, "budget_steps": 1, "seconds": 1.0}
    return RankedNet(trial=trial, accuracy=accuracy, accuracy_per_gmac=0.0, **about | more)  # type: ignore[arg-type]


def finished_run(name: str = "mine") -> Path:
    """A run of two nets."""
    rows = [net_row(i, accuracy=0.9 + i / 100) for i in range(2)]
    return made_run(Path("runs") / name, rows, settings={"objective": "macs"}, trials=2)


def near_noise(groups: Sequence[Sequence[float]], score: float) -> tuple[float, float]:
    """Standard deviation and degrees of freedom of the nets within 0.05 of a score, or of the nearest that give 4."""
    apart = sorted(groups, key=lambda group: abs(fmean(group) - score))
    used, degrees = list[Sequence[float]](), 0
    for group in apart:
        if abs(fmean(group) - score) <= 0.05 or degrees < 4:
            used.append(group)
            degrees += len(group) - 1
    return math.sqrt(sum((x - fmean(g)) ** 2 for g in used for x in g) / degrees), degrees


@cache
def quantile(degrees: int) -> float:
    """Student's, of a 95 % interval."""
    from scipy.stats import t

    return float(t.ppf(0.975, degrees))


def width_of(groups: Sequence[Sequence[float]], one: tuple[float, int], other: tuple[float, int]) -> float:
    """Half width of the 95 % interval of the difference of two nets, each a score and its seeds."""
    known = [(sd / math.sqrt(n), degrees) for score, n in (one, other) for sd, degrees in [near_noise(groups, score)]]
    return math.hypot(*(quantile(degrees) * error for error, degrees in known))
