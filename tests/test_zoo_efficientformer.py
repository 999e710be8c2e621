"""EfficientFormerV2 against timm: costs to the digit, outputs, weights there and back, another image size."""

from __future__ import annotations

import pytest
import timm
import torch

from alternas.archs import InputError, build, resized, static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

NAMES = [f"efficientformerv2_{size}" for size in ("s0", "s1", "s2", "l")]
ALL = [name if name == NAMES[0] else pytest.param(name, marks=pytest.mark.slow) for name in NAMES]


@pytest.mark.parametrize("name", ALL)
def test_costs_are_timms(name: str) -> None:
    cost, (wanted, _) = static_cost(zoo.get(name), 1000, 224), count_timm(name, (224, 224), 1000, 3)
    assert (cost.params, cost.macs) == (wanted["params"], wanted["macs"])


@pytest.mark.parametrize("name", ALL)
def test_timms_weights_give_timms_outputs_and_go_back(name: str) -> None:
    torch.manual_seed(0)
    reference, x = lively(timm.create_model(name)).eval(), torch.randn(2, 3, 224, 224)
    network = convert(reference)
    assert network.genotype.key == zoo.get(name).key
    with torch.no_grad():
        wanted = reference(x)
        assert wanted.std() > 0.01, "a reference that says something"
        assert (network(x) - wanted).abs().max() < 1e-4
    twin = timm.create_model(name).eval()
    twin.load_state_dict(to_timm(network))
    with torch.no_grad():
        assert torch.equal(twin(x[:1]), reference(x[:1]))


def test_a_resized_net_interpolates_its_tables() -> None:
    network = build(zoo.get("efficientformerv2_s0"), 10, 64).eval()
    with pytest.raises(InputError, match="built for a map of 2x2, got 3x3"):
        network(torch.randn(1, 3, 96, 96))
    larger = resized(network, 96)
    assert larger(torch.randn(1, 3, 96, 96)).shape == (1, 10)
    tables = [tensor.shape[1:] for key, tensor in larger.state_dict().items() if key.endswith("attn.table")]
    assert tables == [(3, 3)] * 2 + [(6, 6)] + [(3, 3)] * 2  # reduced, of the downsampling's keys, whole
