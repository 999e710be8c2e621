"""What others find in the same space for the same compute, put together by hand: Optuna, Ray Tune, NePS.

    pip install neural-pipeline-search
    python benchmarks/rivals.py [gpsampler asha neps] [--seeds 10 11 12] [--flops 6e11]

Space, data, limit, compute and measure are those of default_space.py: the hypervolume of all nets that were trained.
Every net is trained from fresh weights by the same recipe, as in a loop that their users would write; a net over the
limit costs nothing and is told as worth nothing. gpsampler: Optuna's GPSampler, accuracy and log MACs. asha: Ray Tune's
ASHA on random draws, and neps: what NePS takes by itself, both by accuracy alone. One process each, one thread.
"""

import json
import math
import random
import statistics
import tempfile
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import torch
from default_space import BOX, CHANCE, DATA, MAX_MACS
from machine import keep, options, shown, sized

from alternas.archs import Genotype, static_cost
from alternas.results.ranking.pareto import hypervolume
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.training import recipes
from alternas.search.training.job import JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.spaces import FixedChooser, Gene, Space, get, options_of

RUNGS = (1 / 8, 1 / 4, 1 / 2, 1.0)


class Trainings:
    """Nets that a rival has trained, in a file, and what they cost."""

    def __init__(self, folder: Path, seed: int, flops: float) -> None:
        self.folder, self.seed, self.flops = folder, seed, flops
        self.space: Space = get("all", load(DataConfig(DATA)).image_size)
        self._loader: MemoryLoader | None = None

    @property
    def loader(self) -> MemoryLoader:  # no cached_property, whose lock Tune could not send to its workers
        if self._loader is None:
            torch.set_num_threads(1)
            self._loader = MemoryLoader(shown(load(DataConfig(DATA))).without_test(), torch.device("cpu"))
        return self._loader

    @property
    def nets(self) -> list[dict[str, float]]:
        file = self.folder / "nets.jsonl"
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()] if file.exists() else []

    @property
    def spent(self) -> float:
        return sum(net["flops"] for net in self.nets)

    @property
    def over(self) -> bool:
        return self.spent >= self.flops

    def net(self, genes: dict[str, Gene]) -> tuple[Genotype, int]:
        """The net of these genes, and its MACs."""
        net, data = self.space.sample(FixedChooser(genes)), self.loader.data
        return net, static_cost(net, len(data.classes), data.image_size, data.in_chans).macs

    def accuracy(self, genes: dict[str, Gene], name: str, since: float = 0.0, share: float = 1.0) -> tuple[float, int]:
        """Train the net of these genes to a share of the budget; its accuracy and MACs, chance if over the limit."""
        net, macs = self.net(genes)
        if macs > MAX_MACS:
            return CHANCE, MAX_MACS
        recipe = replace(recipes.get(recipes.usual(DATA)), **sized({}, {"epochs": 0.2}))
        steps = recipe.steps(len(self.loader.data.train))
        stop, files = max(1, round(share * steps)), str(self.folder / name)
        job = TrainJob(0, net, recipe, self.seed, stop, steps, f"{files}.pt", f"{files}.safetensors", curve_points=1)
        *_, result = train(job, self.loader)
        assert isinstance(result, JobResult), result
        flops = 6.0 * macs * recipe.batch_size * (stop - round(since * steps))
        accuracy = result.accuracy or 0.0
        with open(self.folder / "nets.jsonl", "a", encoding="utf-8") as file:
            file.write(json.dumps({"accuracy": accuracy, "macs": macs, "flops": flops}) + "\n")
        return accuracy, macs


def gpsampler(trainings: Trainings) -> None:
    """Optuna by hand."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    study = optuna.create_study(
        directions=["maximize", "minimize"], sampler=optuna.samplers.GPSampler(seed=trainings.seed)
    )
    choices_of = options_of(trainings.space)
    while not trainings.over:
        trial = study.ask()
        genes: Any = {name: trial.suggest_categorical(name, list(choices)) for name, choices in choices_of.items()}
        accuracy, macs = trainings.accuracy(genes, f"g{trial.number}")
        study.tell(trial, (accuracy, math.log10(macs)))


def asha(trainings: Trainings) -> None:
    """Ray Tune by hand."""
    import ray
    from ray import tune
    from ray.tune.schedulers import ASHAScheduler

    class Spent(tune.Stopper):
        def __call__(self, trial_id: str, result: dict[str, Any]) -> bool:
            return False

        def stop_all(self) -> bool:
            return trainings.over

    def trainable(genes: dict[str, Gene]) -> None:
        name = f"a{tune.get_context().get_trial_id()}"
        for since, share in pairwise((0.0, *RUNGS)):
            tune.report({"accuracy": trainings.accuracy(genes, name, since, share)[0], "share": int(8 * share)})

    ray.init(num_cpus=1, include_dashboard=False, log_to_driver=False)
    scheduler = ASHAScheduler(
        time_attr="share", metric="accuracy", mode="max", max_t=8, grace_period=1, reduction_factor=2
    )
    how = tune.TuneConfig(scheduler=scheduler, num_samples=-1, max_concurrent_trials=1)
    genes = {name: tune.choice(list(choices)) for name, choices in options_of(trainings.space).items()}
    run = tune.RunConfig(stop=Spent(), storage_path=str(trainings.folder / "tune"), verbose=0)
    np.random.seed(trainings.seed)  # which Tune draws by
    tune.Tuner(trainable, param_space=genes, tune_config=how, run_config=run).fit()
    ray.shutdown()


def neps(trainings: Trainings) -> None:
    """NePS by hand."""
    import neps  # pyright: ignore[reportMissingImports]

    choices_of = options_of(trainings.space)
    genes = {name: neps.Categorical(choices) for name, choices in choices_of.items() if len(choices) > 1}
    mine = type("Nets", (neps.PipelineSpace,), genes)()
    count = 0

    def evaluate(**genes: Gene) -> float:
        nonlocal count
        count += 1
        fixed = {name: choices[0] for name, choices in choices_of.items()} | genes
        return 1 - trainings.accuracy(fixed, f"n{count}")[0]

    for seeded in (torch.manual_seed, np.random.seed, random.seed):
        seeded(trainings.seed)
    while not trainings.over:
        neps.run(evaluate, mine, root_directory=trainings.folder / "neps", worker_evaluations_to_spend=5)


RIVALS = {"gpsampler": gpsampler, "asha": asha, "neps": neps}


def main() -> None:
    parser = options(__doc__)
    parser.add_argument("rivals", nargs="*", default=sized(list(RIVALS), ["gpsampler"]))
    parser.add_argument("--seeds", type=int, nargs="*", default=sized([10, 11, 12], [10]))
    parser.add_argument("--flops", type=float, default=sized(6e11, 1e8))
    asked = parser.parse_args()
    figures: dict[str, Any] = {"FLOPs": asked.flops}
    for name in asked.rivals:
        runs: dict[int, Any] = {}
        for seed in asked.seeds:
            with tempfile.TemporaryDirectory() as folder:
                trainings = Trainings(Path(folder), seed, asked.flops)
                RIVALS[name](trainings)
                nets = trainings.nets
                points = [(net["accuracy"], max(BOX[0], net["macs"])) for net in nets]
                runs[seed] = {
                    "hypervolume": round(hypervolume([*points, (CHANCE, BOX[0])], CHANCE, [BOX]), 4),
                    "best accuracy": max(net["accuracy"] for net in nets),
                    "trainings": len(nets),
                    "FLOPs": trainings.spent,
                }
                print(name, seed, runs[seed], flush=True)
        figures[name] = {"median": statistics.median(run["hypervolume"] for run in runs.values()), "seeds": runs}
    keep("rivals", figures)


if __name__ == "__main__":
    main()
