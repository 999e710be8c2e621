"""Cut nets of timm: in records and exports, and trained on, judged by the folds of the probe."""

import json
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from alternas.archs.cut_network import CutNetwork
from alternas.archs.errors import InputError
from alternas.archs.timm.cut_points import cut_points, num_features
from alternas.archs.timm.models import create, origin_of
from alternas.archs.timm_net import POOLINGS, CutNet, cut_cost, picture_moments
from alternas.archs.timm_network import build_net
from alternas.archs.weights import fill, save
from alternas.results.export.export_net import at_size, export_net_of
from alternas.results.export.formats import FORMATS
from alternas.results.export.package import write
from alternas.results.export.write import export_net, export_network
from alternas.results.latency.nets import nets_of
from alternas.results.render.describe_cost import cost_facts
from alternas.results.render.describe_net import draw_trial
from alternas.results.render.terminal import html_of
from alternas.results.runs.record import Record
from alternas.results.runs.status import Status
from alternas.results.runs.trained_weights import trained_network
from alternas.search.data.dataset import DataConfig, DataSet
from alternas.search.data.load import load
from alternas.search.probe import finetune
from alternas.search.probe.evaluate import probe_job
from alternas.search.probe.finetune import Finetuning, finetune_job
from alternas.search.probe.job import CutResult, FinetuneCutJob, ProbeJob, finetuning_recipe
from alternas.search.training.loaders import DeviceLoader, open_loader
from nets import TIMM_FAMILIES, lively, model_alone
from runs import DATA, made_run, net_row

NET = CutNet("test_efficientnet.r160_in1k", 4, 48, "mean-max")
NEAR_OTHERS = {  # of a class of timm's that another one of TIMM_FAMILIES is of, too: 24 classes are left
    "resnet18", "tf_efficientnet_lite0", "mobilenetv3_small_100", "mobilenetv4_conv_small", "mobileone_s0",
    "maxvit_tiny_rw_224", "vit_tiny_r_s16_p8_224", "vit_small_r26_s32_224",
}  # fmt: skip
GREY = DATA | {"image_size": [64, 64], "classes": ["a", "b", "c"], "white_level": 255.0}


def lively_cut(net: CutNet, channels: int = 3) -> Any:
    """A net with logits of about 1, as those of a ridge classifier are."""
    torch.manual_seed(0)
    network: Any = lively(build_net(net, 3, 999, channels)).eval()
    with torch.no_grad():
        largest = network(torch.randn(4, channels, net.side, net.side)).abs().max()
        for tensor in network.head.parameters():
            tensor /= largest
    return network


@pytest.mark.parametrize("pooling", POOLINGS)
def test_model_py_is_the_net_and_needs_no_alternas(
    pooling: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = lively_cut(CutNet(NET.name, 4, 48, pooling), 1)
    exported = export_net_of(network)
    write(exported, tmp_path / "model.py")
    save(network, tmp_path / "weights.safetensors")
    module = model_alone(tmp_path, monkeypatch)
    x_BCHW = torch.rand(2, 1, 48, 48)
    with torch.no_grad():
        assert torch.equal(module.load()(x_BCHW), network(x_BCHW))


@pytest.mark.parametrize("name", ["lcnet_035", "test_resnet", "regnety_002", "test_vit"])
def test_the_lines_on_the_card_make_the_trunk(name: str, tmp_path: Path) -> None:
    """Run as they stand there, with timm and safetensors alone."""
    network = lively_cut(CutNet(name, 4, 96))
    save(network, tmp_path / "weights.safetensors")
    text = FORMATS["package"].usage(export_net_of(network).facts)
    code = text.split("```python")[-1].split("```")[0]
    made: dict[str, Any] = {}
    exec(code.replace('"weights.safetensors"', repr(str(tmp_path / "weights.safetensors"))), made)
    trunk, names = made["trunk"].eval(), set(load_file(tmp_path / "weights.safetensors"))
    assert set(trunk.state_dict()) == names - {"head.weight", "head.bias"}
    x_BCHW = torch.rand(2, 3, 96, 96)
    extra = {"extra_blocks": True} if name == "lcnet_035" else {}
    index = network.trunk.points[-1].index
    with torch.no_grad():
        x = network.picture(x_BCHW)
        (theirs,) = trunk.forward_intermediates(x, indices=[index], intermediates_only=True, **extra)
        assert torch.equal(theirs, network.trunk(x_BCHW)[-1])


def cut_run(folder: Path, **fields: Any) -> Path:
    """A run of grey pictures of 64 px with a cut net that sees 48 px, and its weights."""
    about: Any = {"accuracy": 0.5, "cost": cut_cost(NET, 3).totals(), "weights": "frozen"} | fields
    run = made_run(folder, [net_row(0, NET, **about)], data=GREY)  # pyright: ignore[reportArgumentType]
    (run / "weights").mkdir()
    save(lively_cut(NET, 1), run / "weights" / f"{NET.key}.safetensors")
    np.savez(run / "sample.npz", x=np.random.default_rng(0).integers(0, 256, (3, 1, 64, 64), dtype=np.uint8))
    return run


def test_a_record_is_read_shown_and_measured_at_its_side(tmp_path: Path) -> None:
    run = cut_run(tmp_path / "run")
    record = Record.from_dict(json.loads((run / "records.jsonl").read_text(encoding="utf-8")))
    network: Any = trained_network(run, record).eval()
    x_BCHW = torch.rand(1, 1, 48, 48)
    with torch.no_grad():
        assert torch.equal(network(x_BCHW), lively_cut(NET, 1)(x_BCHW))
    shown = " ".join(unescape(html_of(draw_trial(run, 0))).split())
    assert "timm's test_efficientnet.r160_in1k" in shown
    assert "cut after block 4 at 48 px, pooled by mean-max" in shown
    (timed,) = nets_of(str(run))[0]
    assert (timed.shape, timed.image_size, timed.key) == ((1, 48, 48), (64, 64), NET.key)
    assert timed.make()(torch.rand(timed.shape)[None]).shape == (1, 3)
    save(lively_cut(CutNet(NET.name, 3, 48, "mean-max"), 1), run / "weights" / f"{NET.key}.safetensors")
    with pytest.raises(InputError, match="tensors"):
        trained_network(run, record)


def test_the_cost_of_a_recorded_cut(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """That of the record, at its own side; by hand for other classes, and none at another side."""
    cut_run(tmp_path / "runs" / "r")
    monkeypatch.chdir(tmp_path)
    facts, _ = cost_facts("r:0")
    assert (facts["macs"], facts["params"]) == tuple(cut_cost(NET, 3).totals()[name] for name in ("macs", "params"))
    features = num_features(NET.name, NET.block, NET.pooling)
    assert cost_facts("r:0", classes=5)[0]["macs"] == facts["macs"] + 2 * features
    with pytest.raises(InputError, match="has its own, 48 px"):
        cost_facts("r:0", image_size="64")
    assert [net.shape for net in nets_of("r:0")[0]] == [(1, 48, 48)]


def test_a_frozen_cut_is_said_to_be_frozen(tmp_path: Path) -> None:
    """Card and show: judged by cross-validation, of which weights, by which licence; no recipe, no steps, no seed."""
    about = {"judged": 12, "source": "x.pth"} | origin_of(NET.name)
    run, out = cut_run(tmp_path / "run", recipe={}, budget={"done": 0}, runtime=about), tmp_path / "out"
    export_net(run, out, 0, formats=("package",))
    card = (out / "README.md").read_text(encoding="utf-8")
    shown = " ".join(unescape(html_of(draw_trial(run, 0))).split())
    for text, words in ((card, "cross-validated over 12 pictures"), (shown, "cross-validation over 12 pictures")):
        assert words in text
        assert "ImageNet-1k" in text
        assert "apache-2.0" in text
        assert "None" not in text
        assert "steps" not in text
    assert "recipe | none: the trunk is as it was pretrained" in card
    assert "| seed |" not in card


@pytest.mark.slow
def test_a_record_is_exported_in_every_format(tmp_path: Path) -> None:
    """From raw values of the run's pictures to logits; the card says what the trunk was trained on, and its licence."""
    run, out = cut_run(tmp_path / "run"), tmp_path / "out"
    facts = export_net(run, out, 0, formats=("package", "onnx", "pt2"))
    assert (facts["mean"], facts["std"], facts["image_size"]) == ([0.0], [255.0], [48, 48])
    assert all(of["max_abs_difference"] < 1e-4 for of in facts["formats"].values())
    card = (out / "README.md").read_text(encoding="utf-8")
    assert 'license: "apache-2.0"' in card
    assert "ImageNet-1k" in card
    assert not (out / "genotype.json").exists()


def test_images_at_the_size_of_a_net() -> None:
    images = np.random.default_rng(0).integers(0, 256, (3, 1, 64, 64), dtype=np.uint8)
    assert at_size(images, (64, 64)) is images
    small = at_size(images, (16, 16))
    assert small.shape == (3, 1, 16, 16)
    assert small.mean() == pytest.approx(images.mean(), rel=0.02)


@pytest.mark.slow
@pytest.mark.timeout(900)  # a minute on a machine of its own, mostly of torch's exporters
@pytest.mark.parametrize("pooling", ["grid", "all"])
@pytest.mark.parametrize("name", [name for name in TIMM_FAMILIES if name not in NEAR_OTHERS])
def test_every_family_runs_without_alternas(name: str, pooling: str, tmp_path: Path) -> None:
    """24 of them; "all" needs the maps of all cuts up to the last."""
    network = lively_cut(CutNet(name, int(0.7 * len(cut_points(name))), TIMM_FAMILIES[name], pooling))
    formats = ("package", "onnx", "pt2") if pooling == "grid" else ("package", "onnx")
    facts = export_network(network, tmp_path, formats)
    assert all(of["max_abs_difference"] < 1e-4 for of in facts["formats"].values())


TRUNK = "test_resnet.r160_in1k"
CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def digits() -> DataSet:
    data = load(DataConfig("digits"))
    mean, std = picture_moments(data.mean, data.std, data.white_level)
    few: Any = range(0, len(data.train), 8)
    some: Any = range(40)
    return replace(data, mean=mean, std=std, train=data.train.at([*few]), val=data.val.at([*some]))  # pyright: ignore[reportArgumentType]


@pytest.fixture(scope="module")
def probed(digits: DataSet, tmp_path_factory: pytest.TempPathFactory) -> tuple[FinetuneCutJob, CutResult, DeviceLoader]:
    """The finetuning of the best cut of a small net, and how its probe has judged it."""
    run = tmp_path_factory.mktemp("run")
    for name in ("weights", "checkpoints", "pretrained"):
        (run / name).mkdir()
    torch.manual_seed(0)
    save_file(create(TRUNK).state_dict(), run / "pretrained" / f"{TRUNK}.safetensors")
    loader = open_loader(digits, CPU, 1)
    cuts = probe_job(ProbeJob(0, TRUNK, 32, str(run / "pretrained"), str(run / "weights")), loader).cuts
    best = max(cuts, key=lambda cut: cut.accuracy)
    net = CutNet(TRUNK, best.block, 32, best.pooling)
    files = [str(run / "weights" / f"{net.key}{end}.safetensors") for end in ("", "-finetuned")]
    return FinetuneCutJob(9, net, files[0], 1.0, files[1], str(run / "checkpoints" / f"{net.key}.pt")), best, loader


def test_frozen_it_is_what_the_probe_has_judged(probed: tuple[FinetuneCutJob, CutResult, DeviceLoader]) -> None:
    """The same first folds, classifiers and answers, so that the two are compared on the same pictures."""
    job, best, loader = probed
    found = Finetuning(job, loader)
    kept = np.load(Path(job.frozen).with_suffix(".npz"))
    assert (kept["label"] == kept["guess"]).mean() == pytest.approx(best.accuracy)
    np.testing.assert_array_equal(kept["guess"][: len(found.pictures.y)], found.frozen_NK.argmax(1))


def test_the_kept_net_answers_as_the_record_says(
    probed: tuple[FinetuneCutJob, CutResult, DeviceLoader], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its norms are the frozen ones; resumed after a kill in the third fold it gives the same result."""
    monkeypatch.setattr(finetune, "TRIED_FOLDS", 9)
    job, _, loader = probed
    result = finetune_job(job, loader)
    assert result.status == Status.OK
    network = CutNetwork(job.net, 10, 1)
    fill(network, Path(job.weights))
    frozen, tuned = load_file(job.frozen), load_file(job.weights)
    statistics = [name for name in frozen if "running" in name]
    assert statistics
    assert all(torch.equal(frozen[name], tuned[name]) for name in statistics)
    assert not all(torch.equal(frozen[name], tuned[name]) for name in frozen)
    confusion_KK = np.load(Path(job.weights).with_suffix(".npz"))["val"]
    assert np.trace(confusion_KK) / confusion_KK.sum() == pytest.approx(result.accuracy)
    images = len(loader.data.train) + len(loader.data.val)
    assert result.how["evaluated"] > 3 * 3 * images  # an epoch in five folds of four fifths, without the last batches

    state = torch.load(job.checkpoint, weights_only=True)
    torch.save(state | {"answers": state["answers"][:2], "trained": 0}, job.checkpoint)
    trained = list[int]()
    monkeypatch.setattr(Finetuning, "_keep", lambda self: trained.append(len(self.answers)))
    again = finetune_job(job, loader)
    assert trained == [3, 4, 5]
    assert (again.accuracy, again.how["weights_sha256"]) == (result.accuracy, result.how["weights_sha256"])


def test_a_cut_that_gets_no_better_is_given_up(
    probed: tuple[FinetuneCutJob, CutResult, DeviceLoader], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its weights stay frozen: trained at no rate at all, it is just as good."""
    monkeypatch.setattr(finetune, "finetuning_recipe", lambda *asked: replace(finetuning_recipe(*asked), lr=1e-12))
    job, _, loader = probed
    (tmp_path / "checkpoints").mkdir()
    job = replace(job, weights=str(tmp_path / "weights.safetensors"), checkpoint=str(tmp_path / "checkpoints" / "x.pt"))
    result = finetune_job(job, loader)
    assert (result.status, result.accuracy, result.step) == (Status.PRUNED, None, 0)
    assert not Path(job.weights).exists()
    assert len(torch.load(job.checkpoint, weights_only=True)["answers"]) == finetune.TRIED_FOLDS
