"""Few-shot accuracy of a trained net on classes it was not trained on."""

from __future__ import annotations

from pathlib import Path

from ...archs.weights import read
from ...results.probes.ridge import Labelled
from .bench import Bench
from .job import FewShot, Job
from .probe import episode_table, features

BATCH = 500


def few_shots(job: Job, few: FewShot, novel: Bench) -> dict[str, float]:
    """Mean accuracy of `few`'s episodes on the validation images of `novel`, by "WAYSway_SHOTSshot"."""
    net = read(Path(job.weights)).to(novel.device)
    pool = Labelled(*features(net, novel.images("val", BATCH)))
    rows = episode_table(pool, few.ways, few.shots, few.episodes, job.seed)
    return {name_of(row["ways"], row["shots"]): row["accuracy"] for row in rows}


def name_of(ways: int, shots: int) -> str:
    """The metric of K-way N-shot episodes."""
    return f"{ways}way_{shots}shot"
