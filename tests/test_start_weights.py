"""Training that starts from weights: the head, what stands still, what learns slowly, what is recorded."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
import timm
import torch
from safetensors.torch import load_file
from timm.models.vision_transformer import checkpoint_filter_fn
from torch import nn

from alternas.archs import Genotype, InputError, Stage, Stem, build
from alternas.archs.timm import convert
from alternas.archs.weights import read, save
from alternas.search.data.dataset import DataSet
from alternas.search.data.views import View
from alternas.search.engine.worker import Worker
from alternas.search.training import loop as train
from alternas.search.training import recipes
from alternas.search.training.inherit import inherit, init_weights
from alternas.search.training.job import FREEZE_POLICIES, FewShot, InitWeights, JobResult, TrainJob
from alternas.search.training.loaders import MemoryLoader
from alternas.search.training.optim import optimizer_for
from nets import NETS, lively

CPU = torch.device("cpu")
NET = Genotype(Stem("cifar", 12), (Stage("basic", 1, 12), Stage("basic", 2, 24, 2), Stage("basic", 2, 48, 2)))


@pytest.fixture(scope="module")
def bench(digits: DataSet) -> MemoryLoader:
    return MemoryLoader(digits, CPU)


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(7)
    path = tmp_path_factory.mktemp("weights") / "parent.safetensors"
    save(lively(build(NET, 10, 8, 1)), path)  # type: ignore[arg-type]
    return path


def job(folder: Path, **changes: Any) -> TrainJob:
    given = TrainJob(0, NET, recipes.get("smoke"), 0, 8, 8, str(folder / "c.pt"), str(folder / "w.safetensors"))
    return dataclasses.replace(given, **changes)


def last(events: Any) -> JobResult:
    *_, outcome = list(events)
    assert isinstance(outcome, JobResult)
    return outcome


def trainer(folder: Path, bench: MemoryLoader, start: InitWeights, **changes: Any) -> train.Trainer:
    return train.Trainer(job(folder, start=start, **changes), bench)


@pytest.mark.parametrize("name", NETS)
def test_an_empty_head_leaves_all_classes_equally_likely(name: str, tmp_path: Path) -> None:
    net = NETS[name]
    torch.manual_seed(0)
    save(lively(build(net, 5, 16, 2)), tmp_path / "p.safetensors")  # type: ignore[arg-type]
    new = build(net, 7, 16, 2)
    init_weights(new, InitWeights(str(tmp_path / "p.safetensors"), "p", zero_head=True))
    with torch.no_grad():
        shares = new.eval()(torch.randn(3, 2, 16, 16)).softmax(1)
    assert torch.equal(shares, torch.full((3, 7), 1 / 7)), "exactly uniform"


def test_a_kept_head_starts_where_the_parent_stands(tmp_path: Path, bench: MemoryLoader, weights: Path) -> None:
    here = trainer(tmp_path, bench, InitWeights(str(weights), "p"))
    parent = read(weights).eval()
    (x, _), *_ = bench.images("val", 50)
    with torch.no_grad():
        torch.testing.assert_close(here.net.eval()(x), parent(x), atol=1e-5, rtol=0)  # memory lies otherwise
    assert here.init.lineage["share"] == 1


@pytest.mark.parametrize("width", [6, 12], ids=["narrower", "the same"])
def test_norms_are_estimated_where_weights_were_cut(
    tmp_path: Path, bench: MemoryLoader, weights: Path, width: int
) -> None:
    """The first norm's mean is that of 512 training images; where all is copied, that of the parent stays."""
    net = dataclasses.replace(NET, stem=Stem("cifar", width), stages=(Stage("basic", 1, width), *NET.stages[1:]))
    here = trainer(tmp_path, bench, InitWeights(str(weights), "p", freeze="half"), genotype=net)
    norm: Any = here.shipped.get_submodule("stages.0.0.norm1")
    batches = list(bench.images("train", 128, 512))
    with torch.no_grad():
        seen = torch.cat([here.net.get_submodule("stem")(x_BCHW) for x_BCHW, _ in batches]).mean((0, 2, 3))
    expected = seen if width == 6 else load_file(weights)["stages.0.0.norm1.running_mean"]
    torch.testing.assert_close(norm.running_mean, expected, atol=1e-5, rtol=1e-5)
    result = last(train.train(job(tmp_path / "all", genotype=net, start=here.job.start), bench))
    refitted = len(bench.data.train) + 2 * len(bench.data.val)
    assert result.how["evaluated"] == 9 * len(bench.data.val) + refitted + (512 if width == 6 else 0)


@pytest.mark.parametrize("size", [48, 96])
def test_positions_are_resampled_as_timm_does(tmp_path: Path, size: int) -> None:
    """A state dict of timm's, fine-tuned at another size: timm loads its own weights there with a filter."""
    torch.manual_seed(0)
    small = timm.create_model("vit_tiny_patch16_224", img_size=64, num_classes=5)
    large: Any = timm.create_model("vit_tiny_patch16_224", img_size=size, num_classes=5)
    large.load_state_dict(checkpoint_filter_fn(dict(small.state_dict()), large))
    ours = convert(small)
    save(ours, tmp_path / "small.safetensors")
    net = build(ours.genotype, 5, size)
    begun = init_weights(net, InitWeights(str(tmp_path / "small.safetensors"), "timm's"))
    positions = net.state_dict()["encoder.positions.0.table"]
    torch.testing.assert_close(positions, large.pos_embed, atol=1e-6, rtol=0)
    x = torch.randn(2, 3, size, size)
    with torch.no_grad():
        torch.testing.assert_close(net.eval()(x), large.eval()(x), atol=1e-4, rtol=1e-4)
    hows = {part["place"]: part["how"] for part in begun.lineage["parts"]}
    assert hows.pop("encoder tokens") == "resized"
    assert set(hows.values()) == {"copied"}


def moved(folder: Path, bench: MemoryLoader, start: InitWeights) -> set[str]:
    """Places of the net whose parameters or statistics a short training changes."""
    before = train.Trainer(job(folder / "before", start=start), bench)
    old = {name: value.clone() for name, value in before.net.state_dict().items()}
    net = before.task.unwrap(before.net)
    rows = inherit(net, net)  # which tells the places, and changes no weight
    before.train_to(3)
    new = before.net.state_dict()
    found = set()
    for row in rows:
        names = {n for n, value in old.items() if any(_owns(before.net, part, n) for part in row.parts)}
        if any(not torch.equal(old[n], new[n]) for n in names if "num_batches" not in n):
            found.add(row.place)
    return found


def _owns(net: nn.Module, part: nn.Module | nn.Parameter, name: str) -> bool:
    owner, _, leaf = name.rpartition(".")
    module = net.get_submodule(owner)
    if isinstance(part, nn.Parameter):
        return getattr(module, leaf) is part
    return any(module is inside for inside in part.modules())


BLOCKS = ["stage 1 block 1", "stage 2 block 1", "stage 2 block 2", "stage 3 block 1", "stage 3 block 2"]
WHERE = {
    "none": {"stem", *BLOCKS, "last norm", "head"},
    "none-low-lr": {"stem", *BLOCKS, "last norm", "head"},
    "three-quarters": {BLOCKS[-1], "last norm", "head"},
    "half": {*BLOCKS[-2:], "last norm", "head"},
    "backbone": {"head"},
    "inherited": {"head"},
}


@pytest.mark.parametrize("freeze", FREEZE_POLICIES)
def test_what_a_freeze_policy_trains(tmp_path: Path, bench: MemoryLoader, weights: Path, freeze: str) -> None:
    assert moved(tmp_path, bench, InitWeights(str(weights), "p", zero_head=True, freeze=freeze)) == WHERE[freeze]


def test_new_trains_what_was_swapped_in_and_the_head(tmp_path: Path, bench: MemoryLoader, weights: Path) -> None:
    stages = list(NET.stages)
    stages[1] = dataclasses.replace(stages[1], msa=1, heads=1, head_dim=8, window=0)
    net = dataclasses.replace(NET, stages=tuple(stages))
    start = InitWeights(str(weights), "p", freeze="inherited")
    here = train.Trainer(job(tmp_path, genotype=net, start=start), bench)
    trained = {name for name, p in here.net.named_parameters() if p.requires_grad}
    assert trained
    assert {name.rpartition(".")[0][:10] for name in trained} == {"stages.1.1", "head"}


def test_a_tenth_of_the_rate_for_what_is_inherited(tmp_path: Path, bench: MemoryLoader, weights: Path) -> None:
    here = trainer(tmp_path, bench, InitWeights(str(weights), "p", zero_head=True, freeze="none-low-lr"))
    here.train_step(*next(here.batches))
    rates = {id(p): group["lr"] for group in here.optimizer.param_groups for p in group["params"]}
    head = {id(p) for p in here.net.head.parameters()}  # type: ignore[union-attr]
    fast, slow = ({r for i, r in rates.items() if (i in head) == want} for want in (True, False))
    assert len(fast) == len(slow) == 1
    assert slow.pop() == pytest.approx(fast.pop() / 10)
    decays = {group["weight_decay"] for group in here.optimizer.param_groups for p in group["params"] if p.ndim == 1}
    assert decays == {0.0}
    assert len(rates) == len(list(here.net.parameters())), "every parameter stands in one group"


@pytest.mark.parametrize("decay_all", [False, True])
def test_groups_at_the_full_rate_decay_as_timms(decay_all: bool) -> None:
    net = build(NETS["msa"], 3, 16, 2)
    recipe = dataclasses.replace(recipes.get("smoke"), decay_all=decay_all)
    usual, ours = optimizer_for(net, recipe, 0.1), optimizer_for(net, recipe, 0.1, list(net.stem.parameters()), 0.5)
    decay = [{id(p): g["weight_decay"] for g in o.param_groups for p in g["params"]} for o in (usual, ours)]
    assert decay[0] == decay[1]


def test_a_resumed_finetuning_is_the_unbroken_one(tmp_path: Path, bench: MemoryLoader, weights: Path) -> None:
    start = InitWeights(str(weights), "p", 12, zero_head=True, freeze="half")
    whole = last(train.train(job(tmp_path / "a", start=start), bench))
    last(train.train(job(tmp_path / "b", start=start, stop_step=5), bench))
    broken = last(train.train(job(tmp_path / "b", start=start), bench))
    assert (broken.accuracy, broken.curve, broken.lineage) == (whole.accuracy, whole.curve, whole.lineage)
    a, b = (load_file(tmp_path / x / "w.safetensors") for x in "ab")
    assert all(torch.equal(a[name], b[name]) for name in a)
    assert whole.lineage["steps"] == 12
    assert whole.lineage["parts"][0] == {
        "place": "stem", "source": "stem", "how": "copied", "params": 108, "taken": 108,
    }  # fmt: skip
    other = dataclasses.replace(start, freeze="none")
    with pytest.raises(InputError, match="is of a training with another start"):
        last(train.train(job(tmp_path / "b", start=other), bench))


@pytest.mark.slow
def test_patches_teach_what_finetuning_starts_from(tmp_path: Path, bench: MemoryLoader) -> None:
    net = dataclasses.replace(
        NETS["vit"],
        encoder=dataclasses.replace(NETS["vit"].encoder, patch=2),  # type: ignore[arg-type]
    )
    before = last(train.train(job(tmp_path / "a", genotype=net, task="patches", stop_step=120, total_steps=120), bench))
    assert before.status == "ok"
    assert before.accuracy is not None
    assert before.curve[-1].loss < before.curve[0].loss - 0.3, "it learns colours"
    pretrained = tmp_path / "a" / "w.safetensors"
    assert read(pretrained).genotype.key == net.key, "a network, without what predicts colours"
    after = last(
        train.train(job(tmp_path / "b", genotype=net, start=InitWeights(str(pretrained), "a", 40, True)), bench)
    )
    assert after.status == "ok"
    assert {row["how"] for row in after.lineage["parts"]} == {"copied", "zero"}
    resnet = last(run_in_worker(tmp_path, bench, task="patches"))
    assert resnet.status == "error"
    assert "need tokens" in resnet.error


def run_in_worker(folder: Path, bench: MemoryLoader, **changes: Any) -> Any:
    worker = Worker(1, "cpu")
    worker._loader = bench
    return worker.run(job(folder / "w", **changes))


def test_the_test_split_is_measured_once_and_only_if_asked(tmp_path: Path, bench: MemoryLoader) -> None:
    plain = last(train.train(job(tmp_path / "a"), bench))
    assert not any(name.startswith("test_") for name in plain.metrics)
    tested = last(train.train(job(tmp_path / "b", test=True), bench))
    net = read(tmp_path / "b" / "w.safetensors").eval()
    (x, y), *_ = bench.images("test", 1000)
    with torch.no_grad():
        assert (net(x).argmax(1) == y).float().mean().item() == pytest.approx(tested.metrics["test_accuracy"])
    assert {k: v for k, v in tested.metrics.items() if not k.startswith("test_")} == plain.metrics


def test_a_worker_sees_what_the_job_says(tmp_path: Path, bench: MemoryLoader) -> None:
    few = FewShot((6, 7, 8, 9), (2, 4), (1, 5), episodes=20)
    view = View(0.5, (0, 1, 2, 3, 4, 5))
    outcome = last(run_in_worker(tmp_path, bench, view=view, few_shot=few))
    assert outcome.status == "ok", outcome.error
    names = {"2way_1shot", "2way_5shot", "4way_1shot", "4way_5shot"}
    assert names <= set(outcome.metrics)
    assert outcome.metrics["2way_5shot"] > outcome.metrics["4way_1shot"] > 0.2
    assert read(tmp_path / "w" / "w.safetensors").num_classes == 6
    more = last(run_in_worker(tmp_path / "five", bench, view=view, few_shot=FewShot((6, 7, 8, 9), (5,), (1,))))
    assert more.status == "error", "there are four new classes"


def test_inheriting_needs_readable_weights(tmp_path: Path, bench: MemoryLoader) -> None:
    bad = tmp_path / "bad.safetensors"
    bad.write_bytes(b"\x80\x04")
    outcome = last(run_in_worker(tmp_path, bench, start=InitWeights(str(bad), "bad")))
    assert outcome.status == "error"
    assert "no safetensors file" in outcome.error
    assert inherit is not None
