"""A search inside your own Ray Tune experiment: its callbacks, its storage, its table of results.

    python inside_tune.py

The same again resumes, or has nothing left to do; `alternas front inside-tune` reads the run.
"""

import os
from pathlib import Path

import ray
from ray import tune
from ray.tune.logger import TBXLoggerCallback

import alternas
from alternas.results import read_records
from alternas.results.ranking.front import leaderboard
from alternas.search.engine import tune as alternas_tune

WORKERS = 2


def main():
    ray.init("local", num_cpus=WORKERS, include_dashboard=False)  # or ray.init("auto"), for a cluster that runs
    options = {"data": "digits", "trials": 6, "name": "inside-tune", "scheduler": "mo-asha", "epochs": 4}
    search = alternas_tune.search(alternas.search_spec("alternet", **options))
    tuner = tune.Tuner(
        search.trainable,  # tune.with_resources(search.trainable, {"cpu": 2, "gpu": 0.5}) for other resources
        tune_config=search.tune_config(WORKERS),
        run_config=tune.RunConfig(
            name="inside-tune",
            storage_path=str(Path("tune-results").absolute()),  # or "s3://..."
            callbacks=[TBXLoggerCallback()],  # and MLflowLoggerCallback(...), WandbLoggerCallback(...)
            checkpoint_config=tune.CheckpointConfig(checkpoint_at_end=False),  # nets in training lie in the run
            verbose=0,
        ),
    )
    results = tuner.fit()
    print(f"{len(results)} tasks, {results.num_errors} lost")
    for net in leaderboard(read_records(search.folder)).front:
        print(f"trial {net.trial}: accuracy {net.accuracy:.3f} for {net.costs['macs']:,} MACs, {net.family}")


if __name__ == "__main__":
    os.environ.setdefault("TUNE_DISABLE_AUTO_CALLBACK_LOGGERS", "1")  # else Tune adds its JSON and CSV files
    main()
