"""Event files, read back with tensorboardX's messages."""

import struct
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from alternas.results.runs.store import read_records
from alternas.search.tracking.view import TrackingView, trackers
from alternas.search.training.job import TrainJob
from alternas.search.trials.search_trials import SearchTrials
from alternas.spaces import get
from fakes import FakeExecutor, FakePool, KilledError, SilentView, fake_accuracy, run_loop
from runs import made_run

Open = Callable[..., SearchTrials]


def events(folder: Path) -> list[Any]:
    """What a folder's event files say, each of a session."""
    from tensorboardX.proto.event_pb2 import Event  # pyright: ignore[reportAttributeAccessIssue]

    found = []
    for path in sorted(folder.glob("events.out.tfevents.*")):
        content, at = path.read_bytes(), 0
        while at < len(content):
            (length,) = struct.unpack_from("<Q", content, at)
            found.append(Event.FromString(content[at + 12 : at + 12 + length]))
            at += 16 + length
    return found


def curves(folder: Path) -> dict[str, list[tuple[int, float]]]:
    found: dict[str, list[tuple[int, float]]] = {}
    for event in events(folder):
        for value in event.summary.value:
            if value.WhichOneof("value") == "simple_value":
                found.setdefault(value.tag, []).append((event.step, value.simple_value))
    return found


def texts(folder: Path) -> list[tuple[str, str]]:
    return [
        (value.tag, value.tensor.string_val[0].decode())
        for event in events(folder)
        for value in event.summary.value
        if value.metadata.plugin_data.plugin_name == "text"
    ]


@pytest.mark.usefixtures("elsewhere")
def test_an_experiment_has_a_curve_for_each_training(alternas: Any, fake_pool: type[FakePool]) -> None:
    """By what it is, as its number is another in the next session; also of a study that was done without."""
    words = ["study", "windows", "--data", "digits", "--quick", "--seeds", "2", "--epochs", "1", "--name", "mine"]
    home = Path("runs/mine/tensorboard")

    def die_at_the_third(job: TrainJob) -> None:
        if len(fake_pool.jobs_of_all) == 3:
            raise KeyboardInterrupt

    fake_pool.fate_of_all = staticmethod(die_at_the_third)
    assert alternas(*words, "--track", "tensorboard")[0] == 130
    fake_pool.fate_of_all = staticmethod(lambda job: None)
    for last in ([], ["--track", "tensorboard"]):
        assert alternas(*words, *last)[0] == 0
        assert len(list(home.iterdir())) == (6 if last else 2), "of those with points"
    records = read_records(Path("runs/mine"))
    assert len(records) == 6
    for i, record in enumerate(records):
        window, seed = record.factors["window"], record.seed
        (folder,) = home.glob(f"*-seed-{seed}-{record.training_id}")
        points = [(point["step"], pytest.approx(point["accuracy"], rel=1e-6)) for point in record.curve]
        assert curves(folder)["validation/accuracy_ema"] == (points if i >= 2 else points[-1:]), "fakes tick once"
        assert f"| window | {window} |\n| seed | {seed} |" in dict(texts(folder))["genes/text_summary"]


@pytest.mark.parametrize("noted_from", [1, 2], ids=["from the start", "from the second half"])
def test_a_search_that_was_interrupted_has_each_step_once(
    open_controller: Open, tmp_path: Path, noted_from: int
) -> None:
    left = 11 if noted_from == 1 else -1

    def fate(job: TrainJob) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise KilledError

    for part in (1, 2):
        controller = open_controller(get("resnet", 8), trials=4 * part, scheduler="mo-asha")
        made_run(tmp_path, None)
        with suppress(KilledError), trackers(("tensorboard",) * (part >= noted_from), controller) as threads:
            view = TrackingView(SilentView(), controller.folder, controller.live, threads)
            run_loop(controller, FakeExecutor(fate=fate), view)
            assert part == 2 or noted_from == 2
    trained = [r for r in controller.store.records if r.curve]
    assert len(trained) >= 8
    for record in trained:
        folder = tmp_path / "tensorboard" / f"trial-{record.trial:05d}"
        found = curves(folder)
        assert set(found) == {"validation/accuracy_ema", "train/loss"}
        steps = [step for step, _ in found["validation/accuracy_ema"]]
        assert len(steps) == len(set(steps))
        assert steps[-1] == record.curve[-1]["step"]
        for step, accuracy in found["validation/accuracy_ema"]:
            from alternas.archs import Genotype

            assert accuracy == pytest.approx(fake_accuracy(Genotype.from_dict(record.genotype), step), rel=1e-6)
        notes = dict(texts(folder))
        assert [*notes] == ["genes/text_summary"]
        assert f"| key | {record.key} |" in notes["genes/text_summary"]
        assert all(f"| {gene} | {value} |" in notes["genes/text_summary"] for gene, value in record.genes.items())
    seeds = {path.name for path in (tmp_path / "tensorboard").iterdir() if "seed" in path.name}
    assert seeds or noted_from == 2, "baselines are trained twice"
