"""Nets of timm beside a search (--with): trained, resumed, ranked, exported; what cannot be one is refused at once."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
from PIL import Image
from safetensors.torch import load_file

from alternas.archs import Genotype, InputError, OperationError, build, zoo
from alternas.archs.timm import create
from alternas.archs.timm_net import TimmNet, counted_cost, net_from_dict
from alternas.archs.timm_network import TimmNetwork
from alternas.archs.weights import save
from alternas.cli.values import references
from alternas.results.ranking.front import leaderboard
from alternas.results.ranking.objectives import own_flops
from alternas.results.ranking.run_leaderboard import leaderboard_of
from alternas.results.runs.overview import run_row
from alternas.results.runs.record import Record
from alternas.results.runs.store import read_records
from alternas.search.data.dataset import DataConfig
from alternas.search.data.load import load
from alternas.search.experiments import explain
from alternas.search.training.job import FREEZE_POLICIES, JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.loop import train
from alternas.search.training.recipe import Recipe
from alternas.search.trials.proposer import FIRST_REFERENCE
from alternas.search.trials.search_trials import SearchTrials
from alternas.search.trials.trial import Work
from alternas.search.trials.weight_sources import Relatives
from fakes import FakePool, finish
from runs import DATA, RECIPE, drawn_records, made_run

TINY = TimmNet("test_resnet")
NETS = (TINY, TimmNet("test_vit"))
DEEP = Recipe("deep", 1, 64, "lamb", 3e-3, 0.02, drop_path=0.1, clip_grad=1.0, ema_decay=0.9)
Open = Callable[..., SearchTrials]


@pytest.mark.parametrize(("name", "params", "gmacs"), [
    ("resnet18", 11_689_512, 1.81),  # torchvision's page of weights; timm's results
    ("mobilenetv3_small_100", 2_542_856, 0.056),
])  # fmt: skip
def test_published_sizes(name: str, params: int, gmacs: float) -> None:
    cost = counted_cost(TimmNet(name), 1000, (224, 224), 3)
    assert cost.params == params
    assert cost.macs / 1e9 == pytest.approx(gmacs, abs=0.006)


@pytest.mark.parametrize(("name", "side", "channels"), [("test_resnet", 8, 1), ("test_vit", 32, 5)])
def test_it_is_timms_net(name: str, side: int, channels: int) -> None:
    torch.manual_seed(3)
    ours = TimmNetwork(TimmNet(name), 7, side, channels).eval()
    torch.manual_seed(3)
    size = {"img_size": (side, side)} if name == "test_vit" else {}
    theirs = timm.create_model(name, num_classes=7, in_chans=channels, **size).eval()
    assert list(ours.state_dict()) == list(theirs.state_dict())
    x_BCHW = torch.randn(2, channels, side, side)
    assert torch.equal(ours(x_BCHW), theirs(x_BCHW))
    assert counted_cost(TimmNet(name), 7, (side, side), channels).params == sum(p.numel() for p in theirs.parameters())


def test_names_of_nets_in_records() -> None:
    assert net_from_dict(TINY.to_dict()) == TINY
    assert len({TimmNet("resnet18").key, TimmNet("resnet34").key, TINY.key}) == 3
    with pytest.raises(InputError, match="timm's net 'resnet18' has none"):
        Genotype.from_dict({"timm": "resnet18"})
    for wrong in ({"timm": 3}, {"timm": "../x"}, {"timm": "resnet18", "stem": {}}):
        with pytest.raises(InputError):
            net_from_dict(wrong)


# Bad input.


@pytest.mark.parametrize(("words", "about"), [
    (("--with", "resnet18"), "must be nets of timm such as timm:resnet18, got 'resnet18'"),
    (("--with", "timm:"), "must be nets of timm"),
    (("--with", "timm:resnet18.a1_in1k"), "write timm:resnet18"),
    (("--with", "timm:resnet18,timm:resnet18"), "timm:resnet18 is listed twice"),
    (("--with", "timm:resnet81"), "did you mean 'resnet"),
    (("--with", "timm:vit_tiny_patch16_224"), "vit_tiny_patch16_224 takes no such image"),
])  # fmt: skip
@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_what_cannot_be_one_is_refused_before_the_search(alternas: Any, words: tuple[str, ...], about: str) -> None:
    code, _, err = alternas("search", "resnet", "--data", "digits", "--name", "x", *words)
    assert code == 2
    assert about in err
    assert len(err.strip().splitlines()) == 1
    assert not Path("runs").exists()


@pytest.mark.usefixtures("elsewhere", "fake_pool")
def test_a_net_without_stochastic_depth_is_refused_where_the_recipe_has_it(alternas: Any) -> None:
    Path("mine.json").write_text(json.dumps(DEEP.to_dict()), encoding="utf-8")
    code, _, err = alternas(
        "search", "resnet", "--data", "digits", "--recipe", "mine.json", "--with", "timm:ghostnet_100"
    )
    assert code == 2
    assert "timm:ghostnet_100 cannot have the recipe's drop_path 0.1" in err


# In a search.


def searched(controller: SearchTrials) -> list[tuple[int, str, float | None]]:
    return [(r.trial, r.key, r.accuracy) for r in controller.store.records if r.kind != "reference"]


@pytest.mark.parametrize("strategy", ["evolution", "random", "tpe"])
def test_the_search_draws_the_same_nets_without_them(open_controller: Open, tmp_path: Path, strategy: str) -> None:
    runs, told = [], []
    for beside in ((), NETS):
        controller = open_controller(trials=10, strategy=strategy, references=beside, seed=2)
        finish(controller, slots=1)
        runs.append(searched(controller))
        told.append(controller.history.next_number)
        records = controller.store.records
        assert sum(r.kind == "search" and r.status == "ok" for r in records) == 10
        (tmp_path / "records.jsonl").unlink()
    assert runs[0] == runs[1]
    assert told[0] == told[1]
    found = [r for r in records if r.kind == "reference"]
    assert [(r.trial, r.genotype) for r in found] == [
        (FIRST_REFERENCE + i, net.to_dict()) for i, net in enumerate(NETS)
    ]
    assert all(len(r.accuracies) == 2 and r.family == "timm" and not r.genes for r in found), "seeds as of a baseline"
    assert found[0].cost == {"params": 10**6, "macs": 10**7}


def test_one_may_be_added_to_a_search_that_has_ended(open_controller: Open) -> None:
    finish(open_controller(trials=4, references=NETS[:1]))
    again = open_controller(trials=4, references=NETS)
    assert not again.complete
    executor = finish(again)
    assert {job.trial for job in executor.ran} == {FIRST_REFERENCE + 1}
    assert open_controller(trials=4).complete, "left out, they stay"


def test_nothing_inherits_from_them(open_controller: Open, tmp_path: Path) -> None:
    (tmp_path / "weights").mkdir()
    (tmp_path / "weights" / f"{TINY.key}.safetensors").touch()
    controller = open_controller(trials=4, references=(TINY,), inherit=True)
    finish(controller)
    assert isinstance(controller.weights, Relatives)
    assert controller.weights.get(FIRST_REFERENCE) is None


def test_a_failed_one_is_a_record_and_the_search_goes_on(open_controller: Open) -> None:
    def fate(job: TrainJob) -> JobResult | None:
        return JobResult(job.id, "oom", error="too large") if job.trial == FIRST_REFERENCE else None

    controller = open_controller(trials=4, references=NETS)
    finish(controller, fate=fate)
    by_trial = {r.trial: r for r in controller.store.records}
    assert by_trial[FIRST_REFERENCE].status == "oom"
    assert by_trial[FIRST_REFERENCE + 1].status == "ok"
    assert sum(r.kind == "search" and r.status == "ok" for r in controller.store.records) == 4


# Trained for real.


@pytest.fixture(scope="module")
def loader() -> MemoryLoader:
    return MemoryLoader(load(DataConfig("digits")), torch.device("cpu"))


def test_training_goes_on_from_its_checkpoint_and_timm_loads_the_weights(tmp_path: Path, loader: MemoryLoader) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()

    def trained(name: str, stop: int) -> JobResult:
        files = str(tmp_path / name / "c.pt"), str(tmp_path / name / "w.safetensors")
        *_, result = train(TrainJob(0, TINY, DEEP, 0, stop, 6, *files), loader)
        assert isinstance(result, JobResult)
        return result

    whole = trained("one", 6)
    trained("two", 3)
    broken = trained("two", 6)
    assert whole.status == "ok"
    assert (whole.accuracy, whole.curve) == (broken.accuracy, broken.curve)
    ours, theirs = (load_file(tmp_path / name / "w.safetensors") for name in ("one", "two"))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    net = timm.create_model(TINY.name, num_classes=10, in_chans=1)
    net.load_state_dict(load_file(tmp_path / "one" / "w.safetensors"))
    net.eval()
    right = [(net(x).argmax(1) == y).float() for x, y in loader.images("val", 64, None)]
    assert torch.cat(right).mean().item() == pytest.approx(whole.accuracy)


def reference_record(trial: int, net: TimmNet, accuracy: float) -> dict[str, Any]:
    cost = counted_cost(net, 10, (8, 8), 1).totals()
    return {
        "format": 4, "trial": trial, "kind": "reference", "family": "timm", "key": net.key, "genotype": net.to_dict(),
        "genes": {}, "cost": cost, "status": "ok", "accuracy": accuracy, "accuracies": {"0": accuracy, "1": accuracy},
        "budget": {"full": 32, "done": 32}, "recipe": RECIPE, "seconds": 2.0, "device": "cpu",
        "started_at": "", "finished_at": "",
    }  # fmt: skip


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run with a reference that beats all others, with its weights and validation images."""
    monkeypatch.chdir(tmp_path)
    rows = [*drawn_records(12), reference_record(FIRST_REFERENCE, TINY, 0.99)]
    folder = made_run(tmp_path / "runs" / "mine", rows, data=DATA | {"split": "s"})
    (folder / "weights").mkdir()
    torch.manual_seed(0)
    save(TimmNetwork(TINY, 10, 8, 1), folder / "weights" / f"{TINY.key}.safetensors")
    np.savez(folder / "sample.npz", x=np.random.default_rng(0).integers(0, 17, (6, 1, 8, 8)), y=np.arange(6))
    return folder


def test_it_stands_in_front_leaderboard_and_compute(run: Path) -> None:
    row = next(row for row in leaderboard_of(run).front if row.kind == "reference")
    assert (row.trial, row.family, row.label) == (FIRST_REFERENCE, "timm", "timm:test_resnet")
    assert row.costs["macs"] == counted_cost(TINY, 10, (8, 8), 1).macs
    record = next(r for r in read_records(run) if r.kind == "reference")
    assert run_row(run)["reference_flops"] == 2 * own_flops(record) > 0
    without = [r for r in read_records(run) if r.kind != "reference"]
    gains = {row.trial: row.gain for row in leaderboard(without).rows}
    assert all(r.gain == gains[r.trial] for r in leaderboard_of(run).rows if r.trial in gains)


def test_the_commands_show_it(alternas: Any, run: Path) -> None:
    for words in (("front", "mine"), ("leaderboard", "mine")):
        code, out, err = alternas(*words)
        assert (code, err) == (0, "")
        assert "timm:test_resnet" in out, out
        assert str(FIRST_REFERENCE) not in out
    assert alternas("show", "mine:timm:test_resnet")[0] == 0
    code, _, err = alternas("show", "mine:timm:resnet18")
    assert (code, err) == (2, "alternas: run mine: no reference timm:resnet18\n")
    code, out, _ = alternas("show", "mine", str(FIRST_REFERENCE))
    assert code == 0
    assert "timm's test_resnet, ok, validation accuracy 0.9900" in out
    assert alternas("show", "mine", str(FIRST_REFERENCE), "--json")[0] == 0
    assert alternas("report", "mine")[0] == 0
    assert "timm:test_resnet" in (run / "report.html").read_text(encoding="utf-8")
    made_run(run.with_name("other"), drawn_records(8, 1), data=DATA | {"split": "s"})
    code, out, _ = alternas("compare", "mine", "other", "--json")
    assert code == 0
    assert "timm:test_resnet" in {row["label"] for row in json.loads(out)["front"]}


@pytest.mark.parametrize("words", [
    ("show", "mine", str(FIRST_REFERENCE), "--svg", "net.svg"),
    ("buildup", "--from", f"mine:{FIRST_REFERENCE}", "--data", "digits"),
    ("cost", f"mine:{FIRST_REFERENCE}"),
    ("search", "resnet", "--data", "digits", "--start-with", f"mine:{FIRST_REFERENCE}"),
])  # fmt: skip
@pytest.mark.usefixtures("run", "fake_pool")
def test_what_needs_a_genotype_says_so_in_a_line(alternas: Any, words: tuple[str, ...]) -> None:
    code, _, err = alternas(*words)
    assert code == 2
    assert "timm's net 'test_resnet'" in err
    assert len(err.strip().splitlines()) == 1


@pytest.fixture
def pictures(elsewhere: None) -> None:
    """Two classes of noise in colour, of 40 px."""
    random = np.random.default_rng(0)
    for i in range(20):
        file = Path("pictures", "ab"[i % 2], f"{i}.png")
        file.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(random.integers(0, 256, (40, 40, 3), dtype=np.uint8)).save(file)


@pytest.mark.usefixtures("pictures")
def test_one_named_net_is_a_plan_of_one(alternas: Any, fake_pool: type[FakePool]) -> None:
    """`train` takes what names a net: a genotype or timm's name; one training a seed, then nothing."""
    Path("net.json").write_text(zoo.get("resnet18", 32).to_json(), encoding="utf-8")
    words = ("--data", "pictures", "--image-size", "160", "--seeds", "2", "--json")
    for arch, net in (("timm:test_vit", NETS[1]), ("net.json", zoo.get("resnet18", 32))):
        for _ in range(2):
            code, out, err = alternas("train", arch, *words)
            assert code == 0, err
        jobs = [job for job in fake_pool.jobs_of_all if job.genotype == net]
        assert [(job.seed, job.start, job.test) for job in jobs] == [(0, None, True), (1, None, True)]
        (row,) = json.loads(out)["rows"]
        assert (row["net"], row["seeds"]) == (net.key, 2)
        folder = json.loads(out)["folder"]
        assert [r.status for r in read_records(Path(folder))] == ["ok", "ok"]
    code, out, _ = alternas("front", folder)
    assert (code, "seed noise: unknown (too few" in out) == (0, True)
    for bad, said in (
        ("timm:test_vit.r160_in1k", "is trained from fresh weights"), ("resnet81", "did you mean"),
        ("resnet18", "holds other trainings"),
    ):  # fmt: skip
        code, _, err = alternas("train", bad, "--data", "pictures", "--name", Path(folder).name)
        assert (code, err.count("\n")) == (2, 1)
        assert said in err


@pytest.mark.usefixtures("pictures")
def test_a_rule_fits_the_recipe_and_what_is_frozen_is_asked_for(alternas: Any, fake_pool: type[FakePool]) -> None:
    """BiT-HyperRule trains 40 pictures of 40 px at 128 px for 500 steps;"""
    words = ("--data", "pictures", "--seeds", "1", "--recipe", "bit_hyperrule")
    code, out, err = alternas("train", "resnet18", *words)
    assert code == 0, err
    (job,) = fake_pool.jobs_of_all
    assert (job.total_steps, job.recipe.augment.mixup) == (500, 0.0)
    assert "pictures are read at 128 px" in out
    save(build(zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4), 5, 32, 3), Path("zoo.safetensors"))
    words = ("finetune", "--from", "zoo.safetensors", "--data", "pictures", "--seeds", "1", "--epochs", "1")
    for freeze in FREEZE_POLICIES:
        code, _, err = alternas(*words, "--freeze", freeze)
        assert code == 0, err
        start = fake_pool.jobs_of_all[-1].start
        assert start is not None
        assert start.freeze == freeze


@pytest.mark.usefixtures("pictures")
def test_explain_of_a_net_that_no_run_has_trained(alternas: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """With timm's weights where they are to be had, and by a word with fresh ones where not."""
    seen = list[Any]()

    def offline(name: str, **sizes: Any) -> Any:
        seen.append(sizes)
        raise OperationError("timm: the weights of test_vit.r160_in1k cannot be had (no network)")

    words = ("explain", "timm:test_vit", "--data", "pictures", "--quick", "--analyses", "positions,distance", "--json")
    monkeypatch.setattr(explain, "timm_pretrained", offline)
    code, out, err = alternas(*words)
    assert code == 0, err
    assert "pictures are read at 160 px" in err
    assert seen == [{"num_classes": 2, "in_chans": 3, "image_size": (160, 160)}]
    facts = json.loads(out)
    assert facts["weights"].startswith("fresh weights: timm: the weights of test_vit.r160_in1k cannot be had")
    assert [part["analysis"] for part in facts["analyses"]] == ["distance", "positions"]
    assert Path("explain-test_vit/distance.csv").exists()
    monkeypatch.setattr(explain, "timm_pretrained", lambda name, **sizes: create(name, **sizes))
    facts = json.loads(alternas(*words)[1])
    assert facts["weights"] == "pretrained weights test_vit.r160_in1k, but a fresh head for 2 classes"
    for more, said in ((("--against", "zoo"), "is of no run"), (("--data", ""), "give --data")):
        code, _, err = alternas(*words, *more)
        assert (code, said in err) == (2, True), err


@pytest.mark.slow
@pytest.mark.usefixtures("run")
def test_its_export_is_timms_own(alternas: Any) -> None:
    code, out, err = alternas("export", f"mine:{FIRST_REFERENCE}", "--out", "best", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts["formats"]["package"]["max_abs_difference"] == 0
    files = {"README.md", "config.json", "model.py", "weights.safetensors"}
    assert {path.name for path in Path("best").iterdir()} == files
    assert len(Path("best/model.py").read_text(encoding="utf-8").splitlines()) < 100
    net = timm.create_model(facts["timm"]["name"], **facts["timm"]["arguments"])
    net.load_state_dict(load_file("best/weights.safetensors"))
    assert "timm.create_model('test_resnet', num_classes=10, in_chans=1)" in Path("best/README.md").read_text(
        encoding="utf-8"
    )


def test_a_wrong_file_of_weights_is_not_exported(alternas: Any, run: Path) -> None:
    torch.manual_seed(0)
    save(TimmNetwork(TimmNet("test_vit"), 10, 32, 1), run / "weights" / f"{TINY.key}.safetensors")
    code, _, err = alternas("export", f"mine:{FIRST_REFERENCE}", "--out", "best")
    assert code == 2
    assert "tensors" in err
    assert not Path("best").exists()


def test_parsing() -> None:
    assert references("with", "timm:test_resnet, timm:test_vit") == NETS


@pytest.mark.slow
@pytest.mark.usefixtures("elsewhere")
def test_a_search_trains_them(alternas: Any) -> None:
    words = ("search", "resnet", "--data", "digits", "--trials", "2", "--epochs", "2", "--name", "mine", "--json")
    code, _, err = alternas(*words, "--with", "timm:test_resnet,timm:test_efficientnet", "--objective", "latency_ms")
    assert code == 0, err
    found = [r for r in read_records(Path("runs/mine")) if r.kind == "reference"]
    assert [r.status for r in found] == ["ok", "ok"]
    assert all(isinstance(r, Record) and r.recipe["name"] == "smoke" for r in found)
    names = {row.label for row in leaderboard_of(Path("runs/mine")).rows}
    assert {"timm:test_resnet", "timm:test_efficientnet"} <= names, "with a latency measured"
    code, out, err = alternas("retrain", "mine", "--trials", str(FIRST_REFERENCE), "--seeds", "1", "--json")
    assert code == 0, err
    assert json.loads(out)[0]["test_accuracy"] is not None
    assert alternas("export", f"mine:{FIRST_REFERENCE}", "--out", "best")[0] == 0


def test_the_view_names_them(open_controller: Open) -> None:
    from alternas.search.engine.shown import ShownSearch

    controller = open_controller(trials=2, references=(TINY,))
    shown = ShownSearch(controller)
    assert shown.nets == 2 + len(controller.baselines) + 1
    executor = finish(controller)
    jobs = {job.trial: job for job in executor.ran}
    assert shown.name(jobs[FIRST_REFERENCE]) == "timm:test_resnet"
    record = next(r for r in controller.store.records if r.kind == "reference")
    assert shown.line(record).endswith("timm:test_resnet (reference)")
    assert shown.left() == {"alone": Work()}
