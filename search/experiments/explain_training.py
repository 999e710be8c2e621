"""`explain --training`: how curved the loss is at the end of a net's warm-up, and where it sees 6 % of the data.

Park & Kim, ICLR 2022, section 3: negative eigenvalues of the Hessian are many early on and on few data.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from rich.console import Console

from ...archs import Genotype
from ...results.analysis.registry import analyse
from ...results.analysis_tools.inputs import AnalysisResult
from ...results.analysis_tools.trend import Seen, trend
from ..data.load import progress_on
from ..data.splits import View
from ..engine.resources import Resources
from ..training.optim import warmup_steps
from ..training.recipe import Recipe
from .plan import ExperimentContext, Training
from .run import run_experiment
from .trained_nets import AnalysisContext, TrainedNet, kept

FOLDER, SHARE, WARMUP = "training", 0.06, "warmup"
NAME, TITLE = "hessian_training", "How curved the loss is at the end of warm-up, and on 6 % of the data"


def trainings(net: TrainedNet, images: int) -> list[Training]:
    """The net's warm-up alone, step for step as its whole training has it, and a whole training on 6 % of the images.

    Args:
        net: with the recipe and the seed that it was trained with.
        images: of the training split.
    """
    genotype, recipe = Genotype.from_dict(net.record.genotype), Recipe.from_dict(net.record.recipe)
    steps, seed = recipe.steps(images), net.record.seed
    rising = replace(recipe, warmup=1.0, cooldown=0.0)
    few = View(SHARE, draw=seed)
    return [
        Training(genotype, rising, warmup_steps(recipe, steps), seed, {"net": net.name, "data": "all"}, keep=(WARMUP,)),
        Training(genotype, recipe, steps, seed, {"net": net.name, "data": "6 %"}, few, keep=(WARMUP,)),
    ]


def states(
    run: Path, nets: Sequence[TrainedNet], ground: AnalysisContext, place: Resources, console: Console
) -> list[tuple[str, AnalysisResult | str]]:
    """Train in RUN/training/ what is not trained yet; the Hessian of each net's four states.

    Raises:
        InputError: if the folder holds trainings on other data.
        OperationError: if workers do not start or everything fails.
    """
    home, plans = run / FOLDER, [trainings(net, len(ground.data.train)) for net in nets]
    room = ExperimentContext(home, "study", ground.data, place, {"study": FOLDER})
    records = {r.training: r for r in run_experiment([t for plan in plans for t in plan], room, console)}
    found = []
    with progress_on(console) as progress:
        task = progress.add_task("Hessians", total=4 * len(nets))
        for net, (warm, few) in zip(nets, plans, strict=True):
            early, late = (TrainedNet(net.name, home, records[training.id]) for training in (warm, few))
            seen = []
            for data, at, of in (("all", WARMUP, early), ("all", "", net), ("6 %", WARMUP, late), ("6 %", "", late)):
                seen += _seen(data, at, of, home, ground)
                progress.advance(task)
            found.append((net.name, trend("hessian", net.name, seen) if seen else "no training ended well"))
    return found


def _seen(data: str, state: str, net: TrainedNet, home: Path, ground: AnalysisContext) -> list[Seen]:
    """The Hessian of one state, kept once it is known; none of a training that failed."""
    if net.record.status not in ("ok", "duplicate"):
        return []

    def measured() -> list[dict[str, Any]] | str:
        found = analyse("hessian", ground.subject(net, state))
        return found.rows if isinstance(found, AnalysisResult) else found

    name = "-".join(filter(None, (net.record.training or net.record.key, state)))
    rows = kept(home / "analyses" / f"{name}.json", measured)
    label = f"{data}, {'end of warm-up' if state else 'end'}"
    factors = {"data": data, "at": state or "end"}
    return [] if isinstance(rows, str) else [Seen(label, net.record.seed, factors, rows)]
