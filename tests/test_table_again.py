"""The table's numbers can be had again: two of its nets, trained anew with a seed that it has not got."""

from __future__ import annotations

import math
import statistics
from pathlib import Path

import pytest
import torch

from alternas.archs import Genotype
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.tabular.benchmark_table import Entry
from alternas.search.tabular.published import load_table
from alternas.search.tabular.trained import IMAGE_SIZE
from alternas.search.training import recipes
from alternas.search.training.job import Progress, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.spaces import get, members

SEED = 1_000
LEARNED = 0.75  # nets below may be on a plateau in one seed and beyond it in the next
WITHIN = 4.0  # standard errors of the difference between one training and a mean
STEPS = 625
HALF, END = STEPS // 2, STEPS


def stored(entry: Entry, at: int) -> list[float]:
    """Its reading in each seed."""
    return [training.at(at) for training in entry.trainings.values()]


def trained(net: Genotype, folder: Path) -> dict[int, float]:
    """Its readings by step, trained as a worker of a search does it."""
    files = str(folder / "c.pt"), str(folder / "w.safetensors")
    job, threads = TrainJob(0, net, recipes.get("cue"), SEED, STEPS, STEPS, *files), torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        events = list(train(job, MemoryLoader(load(DataConfig("cue")).without_test(), torch.device("cpu"))))
    finally:
        torch.set_num_threads(threads)
    return {event.point.step: event.point.accuracy for event in events if isinstance(event, Progress)}


@pytest.mark.slow
@pytest.mark.parametrize("attention", [False, True])
def test_a_net_trained_anew_lies_within_the_stored_noise(tmp_path: Path, attention: bool) -> None:
    table = load_table("cue")
    learned = {k: e for k, e in table.entries.items() if len(e.trainings) > 1 and min(stored(e, END)) > LEARNED}
    nets = [net for _, net in members(get("bench", IMAGE_SIZE)) if (net.family != "resnet") == attention]
    net = min((net for net in nets if net.key in learned), key=lambda net: learned[net.key].costs["macs"])
    curve = trained(net, tmp_path)
    assert set(curve) >= {HALF, END}
    for at in (HALF, END):
        sd = math.sqrt(statistics.mean(statistics.variance(stored(entry, at)) for entry in learned.values()))
        have = stored(learned[net.key], at)
        off = abs(curve[at] - statistics.mean(have))
        assert off < WITHIN * sd * math.sqrt(1 + 1 / len(have)), f"{net.key} at {at}: {curve[at]}, not {have}"
