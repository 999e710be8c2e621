"""Nets of our own among pretrained ones: what names them, their maps at each cut, a search among cuts, exports."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image
from torchvision.transforms.functional import pil_to_tensor

from alternas.archs import InputError, build, static_cost
from alternas.archs.cut_network import CutNetwork, cut_trunk
from alternas.archs.files import file_digest
from alternas.archs.own_net import OwnNet
from alternas.archs.timm.cut_points import cut_points, trunk_costs
from alternas.archs.timm_net import CutNet, net_cost, net_from_dict
from alternas.archs.weights import save
from alternas.results.export.export_net import export_net_of
from alternas.results.export.package import write
from alternas.search.pretrained import load_own
from alternas.search.probe.job import ProbeJob
from alternas.search.training.job_files import JobFiles
from alternas.spaces import get
from alternas.spaces.pretrained import PretrainedNet, files_as_names, find_nets
from command_line import Run
from nets import NETS, lively, model_alone

SOME = ("basic", "conv head", "vit 2-D in every layer", "hybrid")
PARENT = get("resnet", 8).baselines()[-2]
WORDS = ["search", "pretrained", "--data", "digits", "--polish", "0", "--name", "cuts", "--json"]


def own(name: str, **more: Any) -> tuple[OwnNet, Any]:
    """A net of `NETS` and its weights, of grey pictures of 16 px."""
    torch.manual_seed(0)
    net = OwnNet("r:1", NETS[name], 16, 1, (0.3,), (0.4,), "0123456789ab")
    return replace(net, **more), lively(build(NETS[name], 5, 16, 1)).eval()


def check_cuts(name: str) -> None:
    """At each cut the map that the whole net has there, by a hook; costs are those of the cut net."""
    net, network = own(name)
    points, outputs = cut_points(net), dict[str, Any]()
    for point in points:
        network.get_submodule(point.place).register_forward_hook(
            lambda _, given, output, place=point.place: outputs.setdefault(place, output)
        )
    x_BCHW = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        maps = cut_trunk(net, 16, network.state_dict())(x_BCHW)
        pooled_map = network.forward_features((x_BCHW - 0.3) / 0.4)
        logits = network((x_BCHW - 0.3) / 0.4)
    for block, (point, map_BCHW) in enumerate(zip(points, maps, strict=True)):
        expected = pooled_map if point.place in ("norm", "last_conv") else outputs[point.place]
        if point.axes == "NLC":  # patches row by row, behind a class token
            height, width = map_BCHW.shape[2:]
            expected = expected[:, -height * width :].mT.reshape(2, -1, height, width)
        assert map_BCHW.shape == expected.shape == (2, point.channels, *map_BCHW.shape[2:]), point.place
        assert (map_BCHW - expected).abs().max() <= 1e-5, point.place
        cut = CutNetwork(CutNet(net, block, 16), 3, 1, network.state_dict()).eval()
        with torch.no_grad():
            assert (cut.trunk(x_BCHW)[-1] - map_BCHW).abs().max() <= 1e-5, point.place
        assert net_cost(cut.genotype, 3, 16).params == sum(parameter.numel() for parameter in cut.parameters())
    if NETS[name].encoder is None:
        with torch.no_grad():
            assert (network.head(maps[-1].mean((2, 3))) - logits).abs().max() <= 1e-5
    head = static_cost(NETS[name], 2, 16, 1).macs - static_cost(NETS[name], 1, 16, 1).macs
    assert trunk_costs(net, 16)[-1][1] <= static_cost(NETS[name], 1, 16, 1).macs - head


@pytest.mark.parametrize("name", SOME)
def test_maps_at_each_cut_are_the_nets_own(name: str) -> None:
    check_cuts(name)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in NETS if name not in SOME])
def test_maps_of_every_net_at_each_cut(name: str) -> None:
    check_cuts(name)


def test_a_cut_of_an_own_net_is_a_value() -> None:
    """Its key follows from the weights, not from what they are called."""
    net, _ = own("basic")
    cut = CutNet(net, 1, 16, "grid")
    assert net_from_dict(json.loads(json.dumps(cut.to_dict()))) == cut
    assert (cut.name, cut.source, cut.family) == ("r:1", "r:1", "resnet")
    assert CutNet(replace(net, name="other"), 1, 16, "grid").key == cut.key
    assert CutNet(replace(net, sha256="f" * 12), 1, 16, "grid").key != cut.key
    with pytest.raises(InputError, match="sha256"):
        net_from_dict(cut.to_dict() | {"own": net.to_dict() | {"sha256": "x"}})


def test_image_sides_of_an_own_net() -> None:
    """Windows must divide the maps, and relative positions fit one side; positions of others are resampled."""

    def sides(name: str) -> tuple[int, ...]:
        net = own(name, side=64)[0]
        return PretrainedNet("r:1", 64, False, 1, 1, None, "unknown", "r:1", net).sides

    assert sides("basic") == (48, 64, 80)
    assert sides("vit relative") == (64,)
    net, network = own("vit 2-D")
    x_BCHW = torch.rand(1, 1, 32, 32)
    assert cut_trunk(net, 32, network.state_dict())(x_BCHW)[-1].shape == (1, 16, 8, 8)


def test_colours_become_grey_as_pillow_makes_them() -> None:
    net, network = own("basic")
    trunk = cut_trunk(net, 16, network.state_dict())
    picture = (torch.rand(3, 16, 16) * 255).round().byte()
    grey = pil_to_tensor(Image.fromarray(picture.permute(1, 2, 0).numpy()).convert("L"))
    found = trunk.picture(picture[None] / 255) * 0.4 + 0.3
    assert (found - grey / 255).abs().max() < 1 / 255


@pytest.mark.parametrize("name", SOME)
def test_model_py_holds_the_net_and_no_alternas(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net, network = own(name)
    cut = CutNetwork(CutNet(net, len(cut_points(net)) // 2, 16, "all"), 3, 1, network.state_dict()).eval()
    exported = export_net_of(cut)
    write(exported, tmp_path / "model.py")
    save(cut, tmp_path / "weights.safetensors")
    assert "create_model" not in (tmp_path / "model.py").read_text(encoding="utf-8")
    module = model_alone(tmp_path, monkeypatch)
    x_BCHW = torch.rand(2, 1, 16, 16)
    with torch.no_grad():
        assert torch.equal(module.load()(x_BCHW), cut(x_BCHW))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The current folder, with an exported net for digits, and the file of its weights alone."""
    monkeypatch.chdir(tmp_path)
    torch.manual_seed(7)
    network: Any = lively(build(PARENT, 10, 8, 1))
    save(network, tmp_path / "w.safetensors")
    (tmp_path / "best").mkdir()
    save(network, tmp_path / "best" / "weights.safetensors")
    (tmp_path / "best" / "genotype.json").write_text(PARENT.to_json(), encoding="utf-8")
    facts = {"classes": [str(i) for i in range(10)], "mean": [4.0], "std": [8.0], "image_size": [8, 8]}
    facts |= {"white_level": 16.0, "data": "digits"}
    (tmp_path / "best" / "config.json").write_text(json.dumps(facts), encoding="utf-8")
    return tmp_path


@pytest.mark.usefixtures("here")
def test_what_names_an_own_net() -> None:
    """A run's trial, a file that we have written, an exported folder; other files are of timm's nets by their names."""
    Path("levit_128s.safetensors").write_bytes(Path("w.safetensors").read_bytes())
    words = ("w.safetensors", "best", "mine:3", "timm:resnet18.a1_in1k", "levit_128s.safetensors")
    names, folder = files_as_names(words)
    assert (names, folder) == (words, "")
    nets, others = find_nets(",".join(names))
    assert [net.name for net in nets] == ["resnet18.a1_in1k"]
    assert others == ["w.safetensors", "best", "mine:3", "levit_128s.safetensors"]


def test_it_sees_pictures_as_it_was_trained(here: Path) -> None:
    """Raw values of 0 to 16 less 4, by 8; of a file that says nothing of its images two deviations to both sides."""
    found, bare = load_own("best/", here), load_own("w.safetensors", here)
    assert (found.net.name, found.net.mean, found.net.std, found.net.data) == ("best", (0.25,), (0.5,), "digits")
    assert found.net.sha256 == bare.net.sha256 == file_digest(here / "w.safetensors")
    assert (bare.net.name, bare.net.mean, bare.net.std) == ("w.safetensors", (0.5,), (0.25,))
    torch.manual_seed(0)
    save(build(PARENT, 10, (8, 16), 1), here / "wide.safetensors")
    with pytest.raises(InputError, match="takes 1 x 8 x 16"):
        load_own("wide.safetensors", here)


@pytest.mark.parametrize(("nets", "line"), [
    ("gone:3", "'gone:3' is none of timm:NAME"),
    ("best,best/weights.safetensors,./best", "nets: best is the name of two nets"),
    ("w.safetensors,twin.safetensors", "w.safetensors and twin.safetensors are the same net"),
    ("torn.safetensors", "torn.safetensors: is no safetensors file, or not all of one"),
    ("other.safetensors", "wrong/other.safetensors"),
    ("cut.safetensors", "a net that is cut after a block has none"),
])  # fmt: skip
def test_what_cannot_be_cut_is_one_line(alternas: Any, here: Path, nets: str, line: str) -> None:
    Path("twin.safetensors").write_bytes((here / "w.safetensors").read_bytes())
    Path("torn.safetensors").write_bytes((here / "w.safetensors").read_bytes()[:3000])
    net, _ = own("basic")
    save(CutNetwork(CutNet(net, 1, 16), 3, 1), here / "cut.safetensors")
    (here / "wrong").mkdir()
    (here / "wrong" / "genotype.json").write_text(NETS["basic"].to_json(), encoding="utf-8")
    for name in ("config.json", "weights.safetensors"):
        (here / "wrong" / name.replace("weights", "other")).write_bytes((here / "best" / name).read_bytes())
    code, _, err = alternas(*WORDS, "--nets", nets.replace("other.", "wrong/other."))
    assert (code, err.count("\n")) == (2, 1)
    assert line in err
    assert not Path("runs").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)  # five commands
def test_a_search_among_cuts_of_an_own_net(served: Run, here: Path) -> None:
    words = [*WORDS, "--nets", "best,w.safetensors"]
    code, out, err = served(here, *words)
    assert code == 0, err
    assert "best was trained on digits" in err
    records = (here / "runs/cuts/records.jsonl").read_bytes()
    assert json.loads(served(here, *words)[1]) == json.loads(out), "resumed: nothing is left to do"
    assert (here / "runs/cuts/records.jsonl").read_bytes() == records
    trial = str(json.loads(out)[-1]["trial"])
    assert "pretrained on" in served(here, "show", "cuts", trial)[1]
    assert served(here, "export", "cuts", "--trial", trial, "--out", "cut", "--formats", "package,onnx")[0] == 0
    save(build(PARENT, 10, 8, 1), here / "w.safetensors")
    code, _, err = served(here, *words)
    assert (code, "exists with other settings: nets is" in err) == (2, True)


def test_a_worker_elsewhere_is_brought_the_weights() -> None:
    class Far:
        """The driver's files, of which one is there."""

        are_here = False

        def stamp(self, path: str) -> tuple[int, int] | None:
            return (1, 1) if path == "/run/starts/w.safetensors" else None

        def fetch(self, path: str, to: Path) -> None:
            to.parent.mkdir(parents=True, exist_ok=True)
            to.write_bytes(b"weights")

    asked = ProbeJob(0, own("basic")[0], 16, "", "/run/weights", frozen="/run/starts/w.safetensors")
    files: Any = Far()
    with JobFiles(files).local(asked) as job:
        assert Path(job.frozen).read_bytes() == b"weights"
        assert Path(job.weights).parent.is_dir()
    with JobFiles(files).local(replace(asked, net="resnet18", frozen="")) as job:
        assert job.frozen == ""
