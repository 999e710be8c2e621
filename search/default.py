"""The default search: what a search does where nobody says otherwise, and why, each choice with its figure.

| choice | default | why |
| --- | --- | --- |
| strategy | `evolution`; `evolution-per-cost` where a limit on compute ends the search | 95 % of the hypervolume for .40 to .64 of TPE's trainings on three tables (docs/strategies.md); worth by FLOPs where these end it |
| first nets | one cheap net of each kind of block, seven at most (samplers/start.py) | else a kind may never be trained: hypervolume .618 for 6e11 FLOPs, .580 without (seed 3; docs/log.md, 11-25) |
| trials | 16; without end where compute ends the search | what a laptop trains in minutes |
| weights | of the most alike trained net, and half of the training then (trials/weight_sources.py) | .580 likewise, .465 from fresh ones |
| scheduler | `mo-asha` from 32 trials on, else none | a net begun then takes half a training; of fewer nets too few are promoted (docs/strategies.md) |
| finetuning | .4 of the compute trains the front's nets on (trials/finetuning_plan.py) | .685 likewise; from .3 to .5 no difference was found |
| beside it | plain ResNets, two seeds each, a quarter of the compute at most (trials/baselines.py) | else nobody knows what a searched net gains, nor how much is noise |
| recipe | `smoke`, fitted to few pictures (fitted_recipe.py) | .400 beside .312 on the test pictures of 191 stamps to train on, four seeds (docs/log.md) |

A run that exists goes on with its own strategy and scheduler, whatever limits it is given later.
"""  # noqa: E501 - a table

from __future__ import annotations

from typing import Any

from ..results.runs.store import read_settings, run_folder
from .samplers.registry import STRATEGIES, find_strategy
from .spec import UNLIMITED

TRIALS = 16
SCHEDULER_FROM_TRIALS = 32
FINETUNING_SHARE = 0.4


def default_settings(
    name: str,
    *,
    strategy: str = "",
    scheduler: str = "",
    trials: int | None = None,
    polish: float | None = None,
    is_limited: bool = False,
    shares_weights: bool = False,
    begins_alone: bool = False,
    begins_elsewhere: bool = False,
    has_folds: bool = False,
) -> dict[str, Any]:
    """Fields of a `SearchSpec`, settled where nothing was asked for: strategy, scheduler, trials, inherit, polish.

    Args:
        name: of the run, which may exist.
        strategy, scheduler, trials, polish: as they were asked for; "" and None ask for nothing.
        is_limited: whether a limit on compute ends the search.
        shares_weights: whether nets are slices of a bank.
        begins_alone: whether each net is to be trained by itself: `--alone`, or the user's own training.
        begins_elsewhere: whether nets begin with weights from outside.
        has_folds: whether nets are cross-validated: then they are not trained on.

    Raises:
        InputError: if the strategy is unknown, or the run's `run.json` cannot be read.
    """
    strategy = strategy or _strategy(name, is_limited)
    planned = find_strategy(strategy).planned
    alone = begins_alone or (planned and not shares_weights)
    return {
        "strategy": strategy,
        "scheduler": scheduler or ("none" if shares_weights else default_scheduler(name, strategy, trials or TRIALS)),
        "trials": trials if trials is not None else UNLIMITED if shares_weights or is_limited else TRIALS,
        "inherit": not (alone or planned or shares_weights or begins_elsewhere),
        "polish": polish if polish is not None else 0.0 if alone or has_folds else FINETUNING_SHARE,
    }


def default_scheduler(name: str, strategy: str, trials: int) -> str:
    """The scheduler of a search that names none: that of the run of this name, else `mo-asha` where it pays.

    Raises:
        InputError: if the run's `run.json` cannot be read.
    """
    if used := _used(name, "scheduler"):
        return used
    return "mo-asha" if trials >= SCHEDULER_FROM_TRIALS and not find_strategy(strategy).planned else "none"


def _strategy(name: str, is_limited: bool) -> str:
    """The strategy of a search that names none: of ours that of the run of this name, else by what its end is."""
    used = _used(name, "strategy")
    if used in STRATEGIES:
        return used
    return "evolution-per-cost" if is_limited else "evolution"


def _used(name: str, setting: str) -> str:
    """A setting of the run of this name; "" where there is none."""
    folder = run_folder(name)
    return read_settings(folder).get("settings", {}).get(setting, "") if (folder / "run.json").exists() else ""
