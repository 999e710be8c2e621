"""ConvNeXts and MetaFormers of the zoo against timm's: sizes to the digit, outputs with its weights, and back."""

from __future__ import annotations

import pytest
import timm
import torch

from alternas.archs import static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from alternas.archs.zoo.convnext import convnexts
from alternas.archs.zoo.metaformer import metaformers
from nets import lively

QUICK = ("convnext_atto", "convformer_s18", "caformer_s18", "poolformerv2_s12", "mambaout_femto")
NAMES = [
    name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in (*convnexts(), *metaformers())
]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_sizes_are_timms(name: str) -> None:
    config = timm.get_pretrained_cfg(zoo.ZOO[name].timm)
    assert config is not None
    _, height, width = config.test_input_size or config.input_size
    theirs, _ = count_timm(zoo.ZOO[name].timm, (height, width), 1000, 3)
    cost = static_cost(zoo.get(name, (height, width)), 1000, (height, width))
    assert (cost.params, cost.macs) == (theirs["params"], theirs["macs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [*QUICK, pytest.param("convnext_tiny", marks=pytest.mark.slow)])
def test_timms_weights_give_timms_outputs(name: str) -> None:
    torch.manual_seed(0)
    reference = lively(timm.create_model(zoo.ZOO[name].timm)).eval()
    network = convert(reference)
    assert zoo.timm_name(network.genotype) == zoo.ZOO[name].timm
    x = torch.randn(1, 3, 224, 224)
    with torch.no_grad():
        wanted = reference(x)
        assert wanted.std() > 0.01
        assert (network(x) - wanted).abs().max() < 1e-4 * max(1.0, wanted.abs().max().item())
    twin = timm.create_model(zoo.ZOO[name].timm).eval()
    twin.load_state_dict(to_timm(network))
    with torch.no_grad():
        assert torch.equal(twin(x), wanted)
