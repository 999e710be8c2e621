"""A training of the user's own: what a file may be, how each end is typed, rungs and kills, the same as ours."""

import math
import os
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file

from alternas.archs import InputError
from alternas.archs.network import Features, build
from alternas.archs.user_code import blamed
from alternas.archs.weights import read
from alternas.results.ranking.metric import Metric
from alternas.results.render.terminal import Console
from alternas.results.runs.store import read_records, read_settings
from alternas.search import prepare
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.engine.worker import Worker
from alternas.search.experiments.trained_nets import data_of
from alternas.search.training import check_trainer as checking
from alternas.search.training import recipes
from alternas.search.training.check_trainer import check_trainer
from alternas.search.training.job import InitWeights, JobResult, Progress, TrainJob
from alternas.search.training.trainer_file import OwnImages, TrainerFile, read_trainer
from alternas.spaces import RandomChooser, get
from command_line import records, run
from far_files import FarFiles

NET = get("resnet", 8).baselines()[2]
SIZES = "IMAGE_SIZE, CLASSES, IMAGES = 8, 3, 64\n"
Written = Callable[[str], TrainerFile]


@pytest.fixture
def written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Written:
    """Writes mine.py in the current folder, and reads it."""
    monkeypatch.chdir(tmp_path)

    def write(text: str) -> TrainerFile:
        Path("mine.py").write_text(text, encoding="utf-8")
        return read_trainer("./mine.py")

    return write


def job(trainer: TrainerFile, **changes: Any) -> TrainJob:
    given = TrainJob(0, NET, recipes.get("smoke"), 0, 4, 4, "state/c.pt", "state/w.safetensors")
    return replace(given, **{"trainer": trainer, "metric": Metric("score")} | changes)


def events(given: TrainJob, data: DataSet | None = None) -> list[Progress | JobResult]:
    """What a worker answers to a job."""
    worker, trainer = Worker(1, "cpu"), given.trainer
    worker.take(data or (trainer.data_set() if trainer else load(DataConfig("digits"))))
    return [*worker.run(given)]


def ended(given: TrainJob, data: DataSet | None = None) -> JobResult:
    *ticks, result = events(given, data)
    assert all(isinstance(tick, Progress) for tick in ticks)
    assert isinstance(result, JobResult)
    return result


FILES = {
    "no function": ("x = 1\n", "must define one function train(context), got none"),
    "two": ("def train(context): ...\n\ndef train(context): ...\n", "train(context), got 2, in lines 1, 3"),
    "two arguments": ("\ndef train(context, net): ...\n", "mine.py:2: must define one function train(context), got tr"),
    "keywords": ("def train(context, *, net): ...\n", "got train(context, *, net)"),
    "async": ("async def train(context): ...\n", "got async train(context)"),
    "no Python": ("x = 1\ndef train(:\n", "mine.py:2: invalid syntax"),
    "computed": ("IMAGE_SIZE = 4 * 8\ndef train(context): ...\n", "mine.py:1: IMAGE_SIZE must be written out"),
    "no classes": ("IMAGE_SIZE = 8\ndef train(context): ...\n", "must say CLASSES and IMAGES"),
    "wrong classes": ("IMAGE_SIZE, CLASSES, IMAGES = 8, (1, 2), 3\ndef train(c): ...\n", "CLASSES must be a number or"),
    "wrong size": ("IMAGE_SIZE, CLASSES, IMAGES = '8', 2, 1\ndef train(c): ...\n", "image size: side must be a whole"),
}


@pytest.mark.parametrize("case", FILES)
def test_what_is_wrong_with_a_file_is_one_line(case: str, written: Written) -> None:
    text, said = FILES[case]
    with pytest.raises(InputError) as error:
        written(text)
    assert said in str(error.value)
    assert "\n" not in str(error.value)


def test_files_that_are_not_there(tmp_path: Path) -> None:
    for name in ("none.py", "folder"):
        with pytest.raises(InputError, match=rf"trainer {name}: (cannot be read|must be a file)"):
            read_trainer(name)


def test_a_file_is_read_and_not_run(written: Written) -> None:
    body = "raise SystemExit\ndef train(context, more=1): ...\n"
    assert written(body).images is None
    sized = written("IMAGE_SIZE: tuple = (8, 12)\nCLASSES, IMAGES = ('a', 'b'), 64\nIN_CHANS = 1\n" + body)
    assert sized.images == OwnImages((8, 12), ("a", "b"), 64, 1)
    data = sized.data_set()
    assert (data.in_chans, data.image_size, data.classes, len(data.train)) == (1, (8, 12), ("a", "b"), 64)
    assert written(SIZES + body).images == OwnImages((8, 8), ("0", "1", "2"), 64, 3)
    assert written(SIZES + body).identity == written(SIZES + body).identity != sized.identity


FINE = """
    for step in range(context.step + 1, context.stop_step + 1):
        context.report(step, score=0.1 * step)
"""
ENDS = {  # what the function does, how its job ends, and what is said
    "fine": (FINE, "ok", ""),
    "raises": ("\n    report = context.report\n    report(1, score={}['x'])\n", "error", "mine.py:4: KeyError: 'x'"),
    "raises in a library": ("\n    import json\n    json.loads('{')\n", "error", "mine.py:4: JSONDecodeError"),
    "stops an iteration": ("\n    next(iter(()))\n", "error", "mine.py:3: StopIteration"),
    "exits": ("\n    import sys\n    sys.exit(3)\n", "error", "the code exits the program with 3"),
    "runs out of memory": ("\n    raise RuntimeError('CUDA out of memory')\n", "oom", "mine.py:3: RuntimeError"),
    "is NaN": ("\n    context.report(1, score=0.5)\n    context.report(2, score=float('nan'))\n", "nan", "score nan"),
    "has an infinite loss": ("\n    context.report(1, score=0.5, loss=1e999)\n", "nan", "training loss inf at step 1"),
    "never says": ("\n    context.report(4, miou=0.5)\n", "error", "reports at step 4 lack score, which nets"),
    "goes back": ("\n    context.report(2, score=1)\n    context.report(1, score=1)\n", "error", "mine.py:4: report"),
    "goes too far": ("\n    context.report(5, score=1)\n", "error", "from 0, reported before, to 4, stop_step, got 5"),
    "stops early": ("\n    context.report(3, score=1)\n", "error", "must report(4, score=...) before it"),
    "says nothing": ("\n    pass\n", "error", "the last report was at step 0"),
    "says words": ("\n    context.report(4, score='good')\n", "error", "report: score must be a number, got 'good'"),
    "says too much": ("\n    context.report(4, score=1, loss=1e200)\n", "error",
                      "report: loss must be a number from -1e+150 to 1e+150, got 1e+200"),
    "makes another net": (f"\n    import torch\n    context.net.head = torch.nn.Identity(){FINE}", "error",
                          "context.net must keep the weights that it was built with"),
    "has no data": ("\n    context.data\n", "error", "mine.py:3: context.data: mine.py brings its own images"),
    "catches all": ("\n    try:\n        context.report(1, score=float('inf'))\n    except Exception:\n        pass\n",
                    "nan", "score inf at step 1"),
    "does not run": ("\n    pass\nimport nothing_of_that_name\n", "error",
                     "mine.py:4: ModuleNotFoundError: No module named 'nothing_of_that_name'"),
    "forks": (f"\n    import os\n    if os.fork() == 0:\n        raise ValueError\n    os.wait(){FINE}", "ok", ""),
}  # fmt: skip


@pytest.mark.parametrize("case", ENDS)
@pytest.mark.filterwarnings("ignore:This process")  # of a fork beside threads, on newer Pythons
def test_every_end_is_a_typed_result(case: str, written: Written) -> None:
    body, status, said = ENDS[case]
    result = ended(job(written(f"{SIZES}def train(context):{body}")))
    assert (result.status, said in result.error, "\n" in result.error) == (status, True, False), result.error
    assert (result.accuracy is not None) == (status == "ok")


def test_what_is_reported(written: Written) -> None:
    """The metric is the curve; less is better where the search says so; all numbers of the last step are kept."""
    text = f"""{SIZES}
def train(context):
    context.report(1, loss=9)
    context.report(2, loss=0.5, score=3, early=1)
    context.report(4, score=2.0)
    context.report(4, miou=0.25, accuracy=1)
"""
    *ticks, result = events(job(written(text), metric=Metric("score", minimize=True)))
    assert [(t.point.step, t.point.accuracy) for t in ticks if isinstance(t, Progress)] == [(2, -3), (4, -2)]
    assert isinstance(result, JobResult)
    assert result.accuracy == -2
    assert result.metrics == {"score": 2, "miou": 0.25, "accuracy": 1}
    assert result.curve[0].loss == 0.5
    assert math.isnan(result.curve[1].loss)
    by_accuracy = ended(job(written(text), metric=Metric()))
    assert (by_accuracy.accuracy, by_accuracy.metrics) == (1, {"score": 2, "miou": 0.25})


LEARNS = f"""{SIZES}
import random
import numpy as np
import torch
def train(context):
    net, optimizer = context.net, torch.optim.SGD(context.net.parameters(), lr=0.1, momentum=0.9)
    head = torch.nn.Linear(4, 2)
    if state := context.load():
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        head.load_state_dict(state["head"])
    for step in range(context.step + 1, context.stop_step + 1):
        x = torch.randn(8, 3, 8, 8, generator=torch.Generator().manual_seed(step))
        loss = net(x).square().mean() + head.weight.square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        context.report(step, loss=loss, score=-loss)
        context.save({{"net": net.state_dict(), "optimizer": optimizer.state_dict(), "head": head.state_dict()}})
        if step == DIES:
            raise OSError("killed here")
    context.keep(head)
"""


def test_rungs_and_kills_change_nothing(written: Written) -> None:
    whole = ended(job(written(LEARNS.replace("DIES", "0"))))
    kept, head = load_file("state/w.safetensors"), load_file("state/w.head.safetensors")
    for stops, dies in (((1, 3, 4), 0), ((4, 4), 3), ((4, 4), 0)):
        shutil.rmtree("state")
        trainer = written(LEARNS.replace("DIES", "0"))
        if dies:
            killed = replace(trainer, source=LEARNS.replace("DIES", str(dies)))
            assert ended(job(killed, stop_step=stops[0])).error.endswith("OSError: killed here")
            other = ended(job(trainer))
            assert other.status == "error"
            assert "is of a training with another" in other.error
            trainer = replace(killed, source=killed.source)
        for stop in stops:
            Path("state/w.safetensors").unlink(missing_ok=True)
            result = ended(job(trainer, stop_step=stop))
            assert (result.status, result.step) == ("ok", stop)
            assert Path("state/w.safetensors").exists() == (stop == 4), "only at the end of the budget"
        assert (result.accuracy, [p.accuracy for p in result.curve]) == (
            whole.accuracy,
            [p.accuracy for p in whole.curve],
        )
        now = load_file("state/w.safetensors")
        assert all(torch.equal(now[name], kept[name]) for name in kept)
        assert load_file("state/w.head.safetensors").keys() == head.keys()
    assert read(Path("state/w.safetensors")).genotype == NET


def test_files_go_to_the_driver_and_come_from_there(written: Written, tmp_path: Path) -> None:
    """From node to node: no worker sees another's files, nor the driver's."""
    home = {"checkpoint": f"{tmp_path}/run/checkpoints/c.pt", "weights": f"{tmp_path}/run/weights/w.safetensors"}
    (tmp_path / "run").mkdir()
    trainer = written(LEARNS.replace("DIES", "0"))
    whole = ended(job(trainer))
    for stop in (2, 4):
        worker = Worker(1, "cpu", 1.0, FarFiles())
        worker.take(trainer.data_set())
        result = list(worker.run(job(trainer, stop_step=stop, **home)))[-1]
        assert isinstance(result, JobResult)
        assert result.status == "ok", result.error
    assert result.accuracy == whole.accuracy
    given = job(trainer, **home)
    assert Path(given.head).exists()
    assert load_file(given.weights).keys() == load_file("state/w.safetensors").keys()


def test_a_state_of_other_things_is_never_unpickled(written: Written) -> None:
    """The training begins anew, and the check before a search says so."""
    text = f"""{SIZES}
class Mine: ...
def train(context):
    assert context.load() is None
    for step in range(context.step + 1, context.stop_step + 1):
        context.report(step, score=1)
        context.save(Mine())
"""
    trainer = written(text)
    assert ended(job(trainer, stop_step=2)).status == "ok"
    result = ended(job(trainer))
    assert (result.status, result.how["checkpoint"]) == ("ok", "was broken; begun anew")
    assert [point.step for point in result.curve] == [1, 2, 3, 4]


def test_a_net_may_inherit(written: Written) -> None:
    trainer = written(LEARNS.replace("DIES", "0"))
    ended(job(trainer))
    shutil.move("state", "parent")
    look = written(f"""{SIZES}
def train(context):
    context.report(4, score=next(context.net.stem.parameters()).sum())
""")
    start = InitWeights("parent/w.safetensors", "trial 0", 4)
    result = ended(job(look, start=start))
    assert result.accuracy == pytest.approx(next(read(Path(start.weights)).stem.parameters()).sum().item())
    assert result.lineage["share"] == 1


def test_norms_are_estimated_where_weights_were_cut(written: Written) -> None:
    """In eval mode the first norm then gives its weight's deviation and its bias's mean, over the training images."""
    ended(job(written(LEARNS.replace("DIES", "0"))))
    shutil.move("state", "parent")
    look = written("""
import torch
from torch import nn
def train(context):
    maps = []
    norm = next(module for module in context.net.modules() if isinstance(module, nn.BatchNorm2d))
    norm.register_forward_hook(lambda module, inputs, output: maps.append(output.detach()))
    context.net.eval()
    for x, _ in context.images("train"):
        context.net(x)
    context.report(4, score=torch.cat(maps).std(dim=(0, 2, 3)).mean() / norm.weight.mean())
""")
    narrower = replace(NET, stages=tuple(replace(stage, width=stage.width // 2) for stage in NET.stages))
    start = InitWeights("parent/w.safetensors", "trial 0", 4)
    result = ended(job(look, genotype=narrower, start=start), load(DataConfig("digits")))
    assert result.lineage["share"] < 1
    assert result.accuracy == pytest.approx(1, abs=0.05)


OURS = """
import torch
from alternas.results.metrics import evaluate
from alternas.search.training.augment import mixed
from alternas.search.training.task import loss_of
from alternas.search.training.optim import Ema, Gradients, optimizer_for, peak_rate, rate_at
def train(context):
    recipe, net, device = context.recipe, context.net, context.device
    peak, ema = peak_rate(recipe, context.genotype), Ema(net, recipe.ema_decay)
    optimizer = optimizer_for(net, recipe, peak)
    gradients = Gradients(net, recipe, lambda forward, x, t: loss_of(recipe, forward(x).float(), t), device)
    parts = {"net": net, "ema": ema.net, "optimizer": optimizer}
    if state := context.load():
        for name, part in parts.items():
            part.load_state_dict(state[name])
    every, losses = max(1, context.total_steps // 16), []
    for step, (x, y) in enumerate(context.batches(), context.step):
        net.train()
        torch.manual_seed((context.seed * 1_000_003 + step) * 4 + 3)
        losses.append(gradients(x.contiguous(memory_format=torch.channels_last), y))
        gradients.update(optimizer, peak * rate_at(recipe, step, context.total_steps))
        ema.update(ema.weight_at(step + 1))
        if (step + 1) % every == 0 or step + 1 == context.stop_step:
            ema.net.eval()
            scores = evaluate(((ema.net(x), y) for x, y in context.images("val")), context.classes)
            context.report(step + 1, loss=torch.stack(losses).mean(), **scores.numbers())
            losses = []
    context.save({name: part.state_dict() for name, part in parts.items()})
    if context.step == context.total_steps:
        net.load_state_dict(ema.net.state_dict())
"""


def test_our_own_loop_gives_our_own_net(written: Written) -> None:
    net, trainer = get("alternet", 8).sample(RandomChooser(0)), written(OURS)
    same: dict[str, Any] = {"genotype": net, "seed": 3, "total_steps": 8, "metric": Metric()}
    same["recipe"] = replace(recipes.get("smoke"), refit=False)  # the last layer of a training of one's own stays
    digits, elsewhere = load(DataConfig("digits")), {"checkpoint": "ours/c.pt", "weights": "ours/w.safetensors"}
    for stop in (3, 8):
        theirs = ended(job(trainer, stop_step=stop, **same), digits)
        ours = ended(replace(job(trainer, stop_step=stop, **same), trainer=None, **elsewhere), digits)
        assert (theirs.status, theirs.accuracy) == ("ok", ours.accuracy)
        assert theirs.metrics.items() >= {name: ours.metrics[name] for name in ("top5", "nll", "ece")}.items()
        assert theirs.curve == ours.curve
    a, b = load_file("state/w.safetensors"), load_file("ours/w.safetensors")
    assert all(torch.equal(a[name], b[name]) for name in a.keys() | b.keys())


def test_a_relative_path_leads_to_no_file_of_the_run(written: Written) -> None:
    Path("runs/own").mkdir(parents=True)
    Path("runs/own/run.json").write_text("{}", encoding="utf-8")
    trainer = written(f"""{SIZES}
from pathlib import Path
def train(context):
    Path("runs/own").mkdir(parents=True, exist_ok=True)
    Path("runs/own/run.json").write_text("junk", encoding="utf-8")
    context.save({{}})
    context.report(context.stop_step, score=1)
""")
    assert ended(job(trainer, stop_step=16)).status == "ok"
    assert Path("runs/own/run.json").read_text(encoding="utf-8") == "{}"
    assert Path("state/c.pt").exists(), "its checkpoint is in the place of the job's"


def test_nobody_waits_for_it_any_more(written: Written) -> None:
    """A job that is let go ends its thread at the next report."""
    trainer = written(f"""{SIZES}
import time
from collections import Counter
def train(context):
    context.stop_step = 10**9
    for step in range(10**9):
        context.report(step, score=1)
        time.sleep(0.01)
""")
    before = threading.active_count()
    worker = Worker(1, "cpu")
    worker.take(trainer.data_set())
    running: Any = worker.run(job(trainer))
    next(running)
    running.close()
    end = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < end:
        time.sleep(0.01)
    assert threading.active_count() == before


CHECKS = {
    "fine": (FINE, ""),
    "raises": ("\n    1 / 0\n", "trainer mine.py: step 1: mine.py:3: ZeroDivisionError: division by zero"),
    "never says": ("\n    context.report(context.stop_step, other=1)\n", "reports at step 1 lack score"),
    "state": (f"{FINE}        context.save(train)\n", "save: must be given tensors, numbers, texts"),
    "does not go on": (f"\n    assert context.step == 0{FINE}        context.save(1)\n", "step 2: mine.py:3: "),
    "dies": ("\n    import os\n    os._exit(7)\n", "its process ended with exit code 7"),
    "hangs": ("\n    import time\n    context.report(1, score=1)\n    time.sleep(99)\n", "mine.py:5: a step takes"),
    "leaves children": (f"\n    import os, time\n    if not os.fork():\n        time.sleep(99){FINE}", ""),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", CHECKS)
def test_the_check_before_a_search(case: str, written: Written, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checking, "SECONDS", 15.0 if case == "hangs" else 120.0)
    body, said = CHECKS[case]
    trainer = written(f"{SIZES}def train(context):{body}")
    began = time.monotonic()
    try:
        check_trainer(trainer, NET, recipes.get("smoke"), 4, Metric("score"), trainer.data_set(), gpu=False)
        error = ""
    except InputError as raised:
        error = str(raised)
    assert (said in error, bool(said)) == (True, bool(error)), error
    assert time.monotonic() - began < 90
    assert not os.path.exists("state")


@pytest.mark.parametrize("seed", range(12))
def test_features_are_the_maps_of_the_net(seed: int) -> None:
    net = build(get("free", 32).sample(RandomChooser(seed)), 5, 32, 2).eval()
    features, x = Features(net), torch.randn(2, 2, 32, 32)
    maps, layers = features(x), zip(features.channels, features.strides, strict=True)
    assert [m.shape for m in maps] == [(2, channels, -(-32 // by), -(-32 // by)) for channels, by in layers]
    assert list(features.strides) == sorted(features.strides)
    if net.encoder is None:
        assert torch.equal(maps[-1], net.forward_features(x))
    elif net.genotype.head.pool == "avg":
        assert torch.allclose(net.head(maps[-1].mean((2, 3))), net(x), atol=1e-5)
    torch.stack([m.square().sum() for m in maps]).sum().backward()
    none = {name for name, parameter in net.named_parameters() if parameter.grad is None}
    assert all(name.startswith("head.") for name in none)


QUICK = ("search", "resnet", "--trials", "1", "--epochs", "1")


@pytest.mark.usefixtures("fake_pool", "elsewhere")
def test_a_search_knows_its_trainer(alternas: Any, fake_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its jobs carry the text; a changed file is another search; the run keeps the text to read."""
    checked = list[str]()
    monkeypatch.setattr(prepare, "check_trainer", lambda trainer, *_: checked.append(trainer.path))
    Path("mine.py").write_text(f"def train(context):{FINE}", encoding="utf-8")
    words = (*QUICK, "--trainer", "./mine.py", "--name", "own")
    code, _, err = alternas(*words)
    assert (code, checked) == (0, ["mine.py"]), err
    trainer = read_trainer("mine.py")
    assert {given.trainer for given in fake_pool.jobs_of_all} == {trainer}
    facts = read_settings(Path("runs/own"))
    assert (facts["trainer_source"], facts["settings"]["trainer"]) == (trainer.source, trainer.identity)
    assert alternas(*words)[0] == 0
    assert len(checked) == 1, "a run that has begun was checked"
    before = len(read_records(Path("runs/own")))
    Path("mine.py").write_text(f"def train(context):{FINE}# changed\n", encoding="utf-8")
    for more in (words, (*QUICK, "--name", "own")):
        code, _, err = alternas(*more)
        assert (code, "trainer is 'mine.py of source " in err, err.count("\n")) == (2, True, 1)
    code, _, err = alternas("retrain", "own")
    assert (code, "trainer: run 'own' was trained by mine.py of source " in err) == (2, True)
    assert len(read_records(Path("runs/own"))) == before
    Path("mine.py").write_text(trainer.source, encoding="utf-8")
    assert alternas("retrain", "own", "--top", "1", "--seeds", "1", "--trainer", "mine.py")[0] == 0
    assert fake_pool.jobs_of_all[-1].trainer == trainer


@pytest.mark.usefixtures("fake_pool", "elsewhere")
def test_a_search_on_images_of_its_own(alternas: Any, fake_pool: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prepare, "check_trainer", lambda *_: None)
    Path("mine.py").write_text(f"{SIZES}def train(context):{FINE}", encoding="utf-8")
    code, _, err = alternas(*QUICK, "--trainer", "./mine.py")
    assert code == 0, err
    run = Path("runs/resnet-mine")
    data = read_settings(run)["data"]
    assert (data["image_size"], data["in_chans"], len(data["classes"])) == ([8, 8], 3, 3)
    assert data["images"] == {"train": 64, "val": 0, "test": 0}
    assert {given.total_steps for given in fake_pool.jobs_of_all} == {recipes.get("smoke").with_epochs(1).steps(64)}
    for option, value in (("--data", "cue"), ("--image-size", "16")):
        said = f"alternas: {option[2:]}: mine.py brings its own images, of IMAGE_SIZE; leave it out\n"
        assert alternas(*QUICK, "--trainer", "mine.py", option, value) == (2, "", said)
    with pytest.raises(InputError, match=r"are its trainer's own, mine\.py, which alone reads them"):
        data_of(run, Console())


@pytest.mark.usefixtures("elsewhere")
def test_what_does_not_go_with_a_trainer_is_one_line(alternas: Any) -> None:
    Path("mine.py").write_text(f"def train(context):{FINE}", encoding="utf-8")
    ours = "is of our own training, and a trainer trains nets itself; leave it out"
    for words, said in (
        ("--supernet 4", f"supernet: {ours}"),
        ("--compile", f"compile: {ours}"),
        ("--gpus-per-trial 2", "gpus-per-trial: a trainer of your own trains on one device, got 2"),
    ):
        assert alternas(*QUICK, "--trainer", "mine.py", *words.split()) == (2, "", f"alternas: {said}\n")


FATES = f"""{SIZES}
import os, time
from pathlib import Path
def train(context):
    here = Path(__file__).parent
    call = len([*here.glob("call*")])
    (here / f"call{{call}}").touch()
    if call == 4:
        time.sleep(1000)
    if call == 5:
        os._exit(1)
    context.report(context.stop_step, accuracy=0.5 + 0.01 * call)
"""


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_training_that_hangs_is_ended_and_one_that_dies_is_tried_again(tmp_path: Path) -> None:
    """With their processes; two calls are of the check."""
    (tmp_path / "mine.py").write_text(FATES, encoding="utf-8")
    words = "search resnet --trainer mine.py --trials 4 --name own --workers 1 --epochs 4 --trial-minutes 0.2"
    code, _, err = run(tmp_path, *words.split())
    assert code == 0, err
    rows = records(tmp_path, "own")
    assert Counter(row["status"] for row in rows) == {"ok": len(rows) - 1, "timeout": 1}


def test_an_installed_packages_error_is_the_users_line(tmp_path: Path) -> None:
    """Of whatever environment: below site-packages is not the user's code."""
    package = tmp_path / "other/site-packages/package.py"
    package.parent.mkdir(parents=True)
    names: dict[str, Any] = {"__name__": "package"}
    exec(compile("def refuse():\n    raise ValueError('no')\n", str(package), "exec"), names)
    mine = compile("\nrefuse()\n", str(tmp_path / "mine.py"), "exec")
    with pytest.raises(ValueError, match="no") as caught:
        exec(mine, {"__name__": "mine", "refuse": names["refuse"]})
    assert blamed(caught.value).endswith("mine.py:2: ValueError: no")
