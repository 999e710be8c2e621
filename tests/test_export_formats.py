"""What leaves: every format gives the net's outputs, timm can use it, and what fails leaves nothing behind."""

import json
import os
import re
import runpy
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from subprocess import CompletedProcess
from types import SimpleNamespace
from typing import Any

import numpy as np
import onnx
import pytest
import timm
import torch
from huggingface_hub import ModelCard
from timm.data.config import resolve_model_data_config
from timm.data.transforms_factory import create_transform
from timm.optim._param_groups import param_groups_layer_decay
from torch import nn

from alternas.archs import Encoder, Genotype, Head, InputError, Network, OperationError, Stage, Stem, build, zoo
from alternas.archs.weights import save
from alternas.results.export import check as checking
from alternas.results.export import formats, isolated, programs
from alternas.results.export import onnx as onnx_format
from alternas.results.export import write as writing
from alternas.results.export.export_net import RANDOM_IMAGES, ExportNet, export_net_of
from alternas.results.export.formats import FORMATS, check_formats
from alternas.results.export.write import export_network, summary_lines, write_formats
from nets import FURTHER, NETS, lively
from runs import finished_run

ALL = tuple(name for name in FORMATS if FORMATS[name].exact and all(map(find_spec, FORMATS[name].requires)))
MODERN = Genotype(
    Stem("patchify", 8, 2),
    (Stage("mbconv", 2, 8, msa=1, heads=2, head_dim=4, window=4, attention="transformer"), Stage("convnext", 2, 12, 2)),
)
HYBRID = Genotype(
    Stem("cifar", 8),
    (Stage("bottleneck", 2, 8, msa=1, heads=2, head_dim=4, window=4, per_head=True), Stage("basic", 1, 12, 2)),
    Encoder(16, 2, 2, patch=2, position="relative", position_at="layers", local=3),
    Head("token", 12),
)
SMALL = {"alternet": NETS["msa"], "post": NETS["post bottleneck"], "modern": MODERN, "hybrid": HYBRID}
POSITIONS = {name for name in NETS if name.startswith("vit ")} - {"vit 2-D shared", "vit local relative"}
EVERY = {name: NETS[name] for name in NETS if name not in FURTHER | POSITIONS}
EVERY |= {name: SMALL[name] for name in ("modern", "hybrid")}


def network_of(net: Genotype, classes: int = 5, size: int = 16, channels: int = 2) -> Network:
    torch.manual_seed(0)
    return lively(build(net, classes, size, channels)).eval()


def folder_of(network: Network, tmp_path: Path, names: Sequence[str] = ALL) -> tuple[Path, dict[str, float]]:
    """The net's draft of a folder, and how far each format's outputs are off, in this very process."""
    folder = tmp_path / f"of_{tmp_path.name}"  # a name of its own: its files are imported
    subject = export_net_of(network, {})
    write_formats(subject, folder, names)
    images, ours = subject.images_NCHW, subject.logits(subject.images_NCHW)
    return folder, {
        name: float(np.abs(isolated.logits(folder / FORMATS[name].file, images) - ours).max()) for name in names
    }


@pytest.mark.slow
def test_onnxruntime_runs_a_gelu_as_one_operator(tmp_path: Path) -> None:
    """Five of them take a fifth of a small net's time. onnxruntime says itself what it made of the file."""
    import onnxruntime

    net = replace(MODERN, stages=(replace(MODERN.stages[1], depth=1, stride=1),))
    FORMATS["onnx"].write(export_net_of(network_of(net)), tmp_path)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    onnxruntime.InferenceSession(str(tmp_path / "model.onnx"), options, providers=["CPUExecutionProvider"])
    found = [node.op_type for node in onnx.load(tmp_path / "optimised.onnx").graph.node]
    assert {"Gelu", "BiasGelu"} & {*found}
    assert "Erf" not in found


@pytest.mark.slow
@pytest.mark.parametrize("name", EVERY)
def test_every_format_of_every_block(name: str, tmp_path: Path) -> None:
    _, found = folder_of(network_of(EVERY[name]), tmp_path)
    assert max(found.values()) < 1e-4, found


# ---- timm


@pytest.fixture(scope="module")
def models(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[Network, str]]:
    """The small nets and their names in timm."""
    found = {}
    for name, net in (SMALL | {"vit": NETS["vit pooled"]}).items():
        network, place = network_of(net), tmp_path_factory.mktemp(f"timm_{name}")
        folder, differences = folder_of(network, place, ("package", "timm"))
        assert max(differences.values()) < 1e-5
        found[name] = network, json.loads((folder / "config.json").read_text(encoding="utf-8"))["name"]
    return found


X = torch.randn(3, 2, 16, 16, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize("name", [*SMALL, "vit"])
def test_timms_own_methods(models: Any, name: str) -> None:
    network, known = models[name]
    net: Any = timm.create_model(known, pretrained=True).eval()
    assert known in timm.list_models()
    assert timm.is_model_pretrained(known)
    with torch.no_grad():
        logits, features = network(X), net.forward_features(X)
        torch.testing.assert_close(net(X), logits)
        pooled = net.forward_head(features, pre_logits=True)
        assert pooled.shape == (3, net.head_hidden_size)
        torch.testing.assert_close(net.get_classifier()(pooled), logits)
        channels = features.shape[1] if features.dim() == 4 else features.shape[2]
        assert channels == net.num_features
        net.reset_classifier(0)
        torch.testing.assert_close(net(X), pooled)
        assert timm.create_model(known, num_classes=0, global_pool="")(X).shape == features.shape
    assert isinstance(net.get_classifier(), nn.Identity)
    net.reset_classifier(7)
    assert net(X).shape == (3, 7)
    fresh = timm.create_model(known, pretrained=True, num_classes=7, drop_rate=0.1, drop_path_rate=0.2)
    for where, tensor in network.state_dict().items():
        if not where.startswith(net.pretrained_cfg["classifier"]):
            assert torch.equal(fresh.state_dict()[where], tensor), where
    assert fresh.train()(X).shape == (3, 7)


def test_maps_of_the_stages(models: Any) -> None:
    for name in SMALL:
        network, known = models[name]
        seen: list[torch.Tensor] = []
        hooks = [stage[-1].register_forward_hook(lambda _, x, y, seen=seen: seen.append(y)) for stage in network.stages]
        with torch.no_grad():
            network(X)
            for hook in hooks:
                hook.remove()
            for take in (tuple(range(len(seen))), (0,)):
                trunk: Any = timm.create_model(known, pretrained=True, features_only=True, out_indices=take).eval()
                maps = trunk(X)
                assert trunk.feature_info.channels() == [y.shape[1] for y in maps]
                assert trunk.feature_info.reduction() == [16 // y.shape[2] for y in maps]
                for at, y in zip(take, maps, strict=True):
                    torch.testing.assert_close(y, seen[at])
            whole: Any = timm.create_model(known, pretrained=True).eval()
            last, found = whole.forward_intermediates(X, indices=1)
            torch.testing.assert_close(last, whole.forward_features(X))
            torch.testing.assert_close(found[0], seen[-1])
    with pytest.raises(RuntimeError, match="features_only needs stages"):
        timm.create_model(models["vit"][1], features_only=True)


def test_layers_for_layer_wise_rates(models: Any) -> None:
    """timm's own grouping: each block a layer, in the order of the forward pass; tables do not decay."""
    for name in ("modern", "hybrid", "vit"):
        net: Any = timm.create_model(models[name][1])
        groups = param_groups_layer_decay(net, 0.05, net.no_weight_decay(), layer_decay=0.5)
        scale = {id(p): (group["lr_scale"], group["weight_decay"]) for group in groups for p in group["params"]}
        assert len(scale) == len(list(net.parameters()))
        named = {where: scale[id(p)] for where, p in net.named_parameters()}
        order: list[tuple[nn.Module, str]] = []
        parts = ["stem", *(f"stages.{i}.{j}" for i, s in enumerate(net.stages) for j in range(len(s)))]
        parts += ["encoder.proj", *(f"encoder.blocks.{i}" for i in range(2))] if net.encoder else []
        order = [part for part in [*parts, "head"] if any(where.startswith(part) for where in named)]  # type: ignore[misc]
        scales = [{rate for where, (rate, _) in named.items() if where.startswith(f"{part}.")} for part in order]
        assert all(len(of) == 1 for of in scales), scales
        rates = [of.pop() for of in scales]
        assert rates == [0.5**i for i in reversed(range(len(rates)))]
        tables = [decay for where, (_, decay) in named.items() if "table" in where or "cls_token" in where]
        assert tables
        assert set(tables) == {0.0}


def test_what_timm_is_told_of_images(tmp_path: Path) -> None:
    """timm's transform of a picture gives what the package's `preprocess` gives of its bytes."""
    from PIL import Image

    about = {"mean": [120.0, 110.0, 100.0], "std": [60.0, 61.0, 62.0], "pictures": True, "classes": ["a", "b c"]}
    subject = export_net_of(network_of(NETS["basic"], 2, 16, 3), about)
    folder = tmp_path / "told"
    write_formats(subject, folder, ("package", "timm"))
    module = isolated._module(folder / "timm_model.py")
    net = timm.create_model(module.NAME, pretrained=True)
    assert net.pretrained_cfg["label_names"] == ("a", "b c")
    assert net.default_cfg["input_size"] == (3, 16, 16)
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24, 3), np.uint8)).save(tmp_path / "a.png")
    transform: Any = create_transform(**resolve_model_data_config(net))
    model = isolated._module(folder / "model.py")
    ours = model.preprocess(model.open_image(tmp_path / "a.png"))
    torch.testing.assert_close(transform(Image.open(tmp_path / "a.png"))[None], ours)


def test_a_package_classifies_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """As it does from Python, with the softmax; what is no picture is a line, and the exit code 2."""
    from PIL import Image

    about = {"mean": [120.0], "std": [60.0], "pictures": True, "classes": ["a", "b\x1b[2J c"]}
    folder = tmp_path / "told"
    write_formats(export_net_of(network_of(NETS["basic"], 2, 16, 1), about), folder, ("package",))
    Image.fromarray(np.random.default_rng(0).integers(0, 256, (24, 24), np.uint8)).save(tmp_path / "new one.png")
    (tmp_path / "junk.png").write_bytes(b"no picture")

    def run(*files: str) -> tuple[Any, list[str], list[str]]:
        """As `python model.py FILES` does: exit code, lines, and lines of errors."""
        monkeypatch.setattr(sys, "argv", ["model.py", *files])
        with pytest.raises(SystemExit) as ended:
            runpy.run_path(str(folder / "model.py"), run_name="__main__")
        captured = capsys.readouterr()
        return ended.value.code, captured.out.splitlines(), captured.err.splitlines()

    monkeypatch.chdir(tmp_path)

    model = SimpleNamespace(**runpy.run_path(str(folder / "model.py"), run_name="model"))
    logits = model.load()(model.preprocess(model.open_image(tmp_path / "new one.png")))[0].double()
    (p, likeliest), (q, other) = sorted(zip(logits.softmax(0).tolist(), ["a", "b?[2J c"], strict=True), reverse=True)
    said = f"new one.png: {likeliest} {p:.4f}, {other} {q:.4f}"
    assert run("new one.png") == (0, [said], [])
    code, out, errors = run("gone.png", "junk.png", "new one.png")
    assert (code, out, errors[0]) == (2, [said], "gone.png: No such file or directory")
    assert [errors[1].startswith("junk.png: not a picture"), len(errors)] == [True, 2]
    code, out, _ = run()
    assert (code, out[-1]) == (None, "input (1, 1, 16, 16) -> logits (1, 2)")
    folder = tmp_path / "arrays"
    write_formats(export_net_of(network_of(NETS["basic"], 2, 16, 1), about | {"pictures": False}), folder, ("package",))
    refused = "new one.png: this net takes arrays of its data's own values, and reads no files"
    assert run("new one.png") == (2, [], [refused])


def test_a_fixed_size_is_said(models: Any) -> None:
    for name, fixed in {"alternet": False, "modern": False, "hybrid": True, "vit": True}.items():
        net = timm.create_model(models[name][1])
        assert net.pretrained_cfg["fixed_input_size"] is fixed
    with pytest.raises(ValueError, match="made for images of"):
        timm.create_model(models["vit"][1], img_size=32)
    assert timm.create_model(models["alternet"][1], img_size=32)(torch.randn(1, 2, 32, 32)).shape == (1, 5)
    with pytest.raises(ValueError, match="global_pool must be 'avg'"):
        timm.create_model(models["vit"][1], global_pool="token")


# ---- what is refused, and what fails


@pytest.mark.parametrize("several", [True, False])
@pytest.mark.parametrize("name", FORMATS)
def test_how_a_format_is_loaded_is_python_and_names_its_file(name: str, several: bool) -> None:
    facts = {"name": "net", "stages": 4, "several_labels": several, "formats": {"onnx": {"opset": 18}}}
    text = FORMATS[name].usage(facts)
    codes = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    assert codes
    assert FORMATS[name].file in text
    for code in codes:
        compile(code, name, "exec")


def test_formats_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_formats("package") == ("package",)
    assert check_formats("timm, onnx") == ("package", "onnx", "timm")
    monkeypatch.setattr(formats, "find_spec", lambda name: None if name in ("onnx", "onnxscript") else object())
    with pytest.raises(
        InputError, match=r'onnx needs onnx, onnxscript, which are not .*pip install "alternas\[export]"'
    ):
        check_formats("pt2,onnx")
    assert check_formats("pt2") == ("pt2",)


def test_a_format_that_cannot_be_written_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(subject: Any, file: Path) -> dict[str, Any]:
        file.write_text("half", encoding="utf-8")
        raise NotImplementedError("no such\noperator")

    monkeypatch.setattr(programs, "write_pt2", fails)
    with pytest.raises(OperationError, match=r"export: pt2: NotImplementedError: no such$"):
        export_network(network_of(NETS["basic"]), tmp_path / "out", ("package", "pt2"))
    assert list(tmp_path.iterdir()) == []


@pytest.mark.slow
def test_outputs_that_differ_leave_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    network = network_of(NETS["basic"])
    subject = export_net_of(network, {})
    ours = subject.logits(subject.images_NCHW)
    assert ours.shape == (1 + RANDOM_IMAGES, 5)

    def answers(off: float) -> Any:
        def run(command: list[str], cwd: str, **options: Any) -> CompletedProcess[str]:
            np.save(f"{cwd}/model.py.npy", ours + off)
            return CompletedProcess(command, 1, stderr="ImportError: no such thing\n")

        return run

    for off, words in (
        (1.1e-4, "package: outputs differ by 1.1e-04"),
        (np.nan, "differ by nan"),
        (0, "onnx: does not"),
    ):
        monkeypatch.setattr(checking, "subprocess", SimpleNamespace(run=answers(off)))
        with pytest.raises(OperationError, match=f"export: .*{words}"):
            export_network(network, tmp_path / "out", ("package", "onnx") if off == 0 else ("package",))
        assert list(tmp_path.iterdir()) == []
    with pytest.raises(OperationError, match="shape"):
        checking.difference("onnx", np.zeros((2, 1)), np.zeros((1, 1)))


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way", encoding="utf-8")
    for out in (tmp_path / "file", tmp_path):
        with pytest.raises(InputError, match="not an empty folder"):
            export_network(network_of(NETS["basic"]), out)


# ---- the command, the file of ONNX, the card


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A run whose two nets have weights, and its validation images."""
    (tmp_path / "run").mkdir()
    monkeypatch.chdir(tmp_path / "run")
    folder = finished_run()
    (folder / "weights").mkdir()
    net = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    save(network_of(net, 10, 8, 1), folder / "weights" / f"{net.key}.safetensors")
    np.savez(folder / "sample.npz", x=np.random.default_rng(0).integers(0, 17, (6, 1, 8, 8)), y=np.arange(6))
    return folder


@pytest.mark.slow
def test_the_command_writes_every_format(alternas: Any, run: Path) -> None:
    code, out, err = alternas("export", "mine:0", "--out", "best", "--formats", "timm,onnx,pt2", "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert facts == json.loads(Path("best/config.json").read_text(encoding="utf-8"))
    assert (facts["trial"], facts["accuracy"]) == (0, 0.9)
    assert list(facts["formats"]) == ["package", "onnx", "pt2", "timm"]
    assert facts["checked"] == {"images": 6, "batch_sizes": [1, 6], "tolerance": 1e-4}
    assert all(of["max_abs_difference"] < 1e-4 for of in facts["formats"].values())
    files = {"README.md", "config.json", "genotype.json", "weights.safetensors"}
    assert {path.name for path in Path("best").iterdir()} == files | {of["file"] for of in facts["formats"].values()}
    source = Path(onnx_format.__file__).parents[2]  # of this checkout, which is nobody's business
    assert not any(str(source).encode() in file.read_bytes() for file in Path("best").iterdir())
    model = onnx.load("best/model.onnx")
    assert model.opset_import[0].version == facts["formats"]["onnx"]["opset"] == onnx_format.OPSET
    (given,), (logits,) = model.graph.input, model.graph.output
    sides = [[d.dim_param or d.dim_value for d in value.type.tensor_type.shape.dim] for value in (given, logits)]
    assert sides == [["batch", 1, 8, 8], ["batch", 10]]
    assert {p.key: json.loads(p.value) for p in model.metadata_props}["classes"] == facts["classes"]
    assert summary_lines(facts, Path("best"))[0] == "best: trial 0, accuracy 0.9000"
    assert any(
        line.startswith("  onnx      model.onnx      outputs equal to ") for line in summary_lines(facts, Path("best"))
    )


@pytest.mark.parametrize(("words", "hint"), [
    (("mine:0", "--trial", "1"), "only one of them"),
    (("mine:0", "--pick", "gain"), "only one of them"),
    (("mine:7",), "no trial 7"),
    (("mine:x",), "RUN:TRIAL names a trial by its number, got 'x'"),
    (("mine", "--formats", "onxn"), "did you mean 'onnx'"),
    (("mine", "--formats", ""), "formats: unknown value ''"),
])  # fmt: skip
def test_bad_words(alternas: Any, run: Path, words: tuple[str, ...], hint: str) -> None:
    code, out, err = alternas("export", *words, "--out", "best")
    assert (code, out, len(err.splitlines())) == (2, "", 1)
    assert hint in err
    assert not Path("best").exists()


@pytest.mark.slow
def test_large_nets_keep_their_weights_beside_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(onnx_format, "MAX_BYTES", 1000)
    facts = export_network(network_of(NETS["basic"]), tmp_path / "out", ("onnx",))
    assert facts["formats"]["onnx"]["max_abs_difference"] < 1e-4
    assert (tmp_path / "out" / "model.onnx.data").stat().st_size > 1000
    assert "model.onnx.data" in (tmp_path / "out" / "README.md").read_text(encoding="utf-8")


def card_of(subject: ExportNet, draft: Path, names: Sequence[str]) -> Path:
    known = write_formats(subject, draft, names)
    writing.write_card(subject, draft, known, {name: {"max_abs_difference": 0.0} for name in names})
    return draft / "README.md"


def test_the_card_is_one_that_the_hub_reads(tmp_path: Path) -> None:
    about = {
        "accuracy": 0.9,
        "accuracy_on": "validation split of a|b, seed 1",
        "test_accuracy": 0.8,
        "data": "a: 'b' | \"c\" #\n- d",
        "trained": {"recipe": "fast", "epochs": 3, "done": 24},
        "seed": 1,
        "seeds": 3,
        "accuracy_over_seeds": {"mean": 0.85, "sd": 0.05, "n": 3, "low": 0.7, "high": 1.0},
        "versions": {"torch": "2.9"},
        "classes": ["x|y", "ünter\n- 1", "3", "4", "5"],
    }
    subject = export_net_of(network_of(NETS["hybrid"]), about)
    card: Any = ModelCard.load(card_of(subject, tmp_path / "draft", ("package", "timm")))
    assert (card.data.license, card.data.library_name) == ("unknown", "timm")
    assert card.data.tags == ["image-classification", "alternas", "hybrid"]
    results = card.data.eval_results
    assert results is not None
    assert [(r.metric_type, r.metric_value, r.dataset_split) for r in results] == [
        ("accuracy", 0.9, "validation"),
        ("accuracy", 0.8, "test"),
    ]
    assert results[0].dataset_name == about["data"]
    for row in (
        "| accuracy | 0.9000 (validation split of a\\|b, seed 1) |",
        "| test accuracy | 0.8000 |",
        "| accuracy over seeds | 0.8500 ± 0.0500 (3) |",
        "| recipe | fast, 3 epochs, 24 steps |",
        "| seed | 1 (the best on validation of 3 seeds) |",
        "| trained with | torch 2.9 |",
        "| classes | 5: x\\|y, ünter - 1, 3, 4, 5 |",
    ):
        assert row in card.text
    assert "images of 16 x 16 alone" in card.text
    assert f'timm.create_model("{subject.facts["name"]}", pretrained=True)' in card.text
    assert "torch.export.load" not in card.text


def test_a_class_whose_name_is_no_utf_8(tmp_path: Path) -> None:
    """As a folder named in Latin-1 gives it: shown escaped on the card, kept in config.json."""
    name = os.fsdecode(b"caf\xe9")
    subject = export_net_of(network_of(NETS["hybrid"]), {"classes": [name, "naïve", "3", "4", "5"]})
    writing.write_card(subject, tmp_path, {}, {})
    assert "caf\\udce9, naïve" in (tmp_path / "README.md").read_text(encoding="utf-8")
    assert json.loads((tmp_path / "config.json").read_text(encoding="ascii"))["classes"][:2] == [name, "naïve"]


def test_what_users_wrote_is_text_on_the_card(tmp_path: Path) -> None:
    evil = "<img src=x onerror=alert(1)> [a](javascript:b) `c`\n# d"
    about = {
        **{"accuracy": 0.9, "accuracy_on": evil, "data": evil, "trained": {"recipe": evil, "epochs": 3}, "seed": 1},
        **{"versions": {evil: evil}, "classes": [evil, "2", "3", "4", "5"], "checked_on": evil},
    }
    subject = export_net_of(network_of(NETS["hybrid"]), about)
    text = ModelCard.load(card_of(subject, tmp_path / "draft", ("package",)), ignore_metadata_errors=True).text
    assert text.count("&lt;img" if "&lt;" in text else "&#60;img") >= 6
    assert "<img" not in text
    assert "[a](" not in text.replace("\\[", "")
    assert "\n# d" not in text
