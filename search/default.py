"""The default search: what a search does where nobody says otherwise, and why, each choice with its figure.

| choice | default | why |
| --- | --- | --- |
| what comes next | the first nets, then what the strategy proposes (trials/proposer.py); on a free worker a promotion goes before | - |
| strategy | `evolution` (strategies/evolution.py): the change or draw that a surrogate expects to add most to the front; `evolution-per-cost` where a limit on compute ends the search | 95 % of the hypervolume for .43 to .60 of TPE's trainings on three tables (docs/strategies.md); worth by FLOPs where these end it |
| first nets | one cheap net of each kind of block, those of one kind alone first, far apart in cost, seven at most (`first_nets` in trials/proposer.py) | else a kind may never be trained: hypervolume .618 for 6e11 FLOPs, .580 without (seed 3; docs/log.md, 11-25) |
| data | `clutter-small` (`DEFAULT` in data/readers/registry.py) | tells nets apart in minutes on two cores (docs/data.md) |
| trials | 16; without end where compute ends the search | what a laptop trains in minutes |
| weights | of the most alike trained net (trials/weight_sources.py), layer by layer (training/inherit.py), and half of the training then | .580 likewise, .465 from fresh ones |
| scheduler | `mo-asha` from 32 `--trials` on, else none | a net begun then takes half a training; of fewer nets too few are promoted (docs/strategies.md) |
| finetuning | .4 of the compute trains the front's nets on (trials/finetuning.py) | .685 likewise; from .3 to .5 no difference was found |
| beside it | plain ResNets, two seeds each, a quarter of the compute at most (trials/baselines.py) | else nobody knows what a searched net gains, nor how much is noise |
| recipe | `smoke`, fitted to few pictures (fitted_recipe.py) | .400 beside .312 on the test pictures of 191 stamps to train on, four seeds (docs/log.md) |

A run that exists goes on with its own strategy and scheduler, whatever limits it is given later.
"""  # noqa: E501 - a table

import math
from typing import Any

from ..results.runs.store import plain_name, read_settings, run_folder
from .strategies.registry import PLANNED, STRATEGIES
from .training import recipes

TRIALS = 16
UNLIMITED = 10**9  # trials of a search that its compute ends
SCHEDULER_FROM_TRIALS = 32
FINETUNING_SHARE = 0.4
UNSET: Any = None  # a field of `SearchSpec` that nobody has set: it is settled here, so that nobody else sees this


def default_settings(spec: Any) -> dict[str, Any]:
    """Fields of a `SearchSpec`, settled where nothing was asked for.

    `spec`: the `SearchSpec` that is being made, with `UNSET` and "" where nothing was. Raises InputError if the
    strategy is unknown, or the `run.json` of a run of this name cannot be read.
    """
    name = spec.name or plain_name(spec.space, spec.data.name)
    is_limited = spec.run.budget.train_flops < math.inf
    strategy = spec.strategy or _strategy(name, is_limited)
    shares_weights, planned = bool(spec.supernet), strategy in PLANNED
    alone = bool(spec.trainer) or spec.inherit is False or (planned and not shares_weights)
    settled = {
        "name": name,
        "recipe": recipes.get(recipes.usual(spec.data.name)),
        "trials": UNLIMITED if shares_weights or is_limited else TRIALS,
        "inherit": not (alone or planned or shares_weights or spec.pretrained),
        "polish": 0.0 if alone or spec.folds else FINETUNING_SHARE,
    }
    settled |= {field: given for field in settled if (given := getattr(spec, field)) not in (UNSET, "")}
    scheduler = spec.scheduler or ("none" if shares_weights else "")
    if not scheduler:
        scheduler = default_scheduler(name, strategy, TRIALS if spec.trials is UNSET else spec.trials)
    return settled | {"strategy": strategy, "scheduler": scheduler}


def default_scheduler(name: str, strategy: str, trials: int) -> str:
    """The scheduler of a search that names none: that of the run of this name, else `mo-asha` where it pays.

    Raises InputError if the run's `run.json` cannot be read.
    """
    if used := _used(name, "scheduler"):
        return used
    return "mo-asha" if trials >= SCHEDULER_FROM_TRIALS and strategy not in PLANNED else "none"


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
