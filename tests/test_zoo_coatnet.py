"""CoAtNet against timm: costs to the digit, outputs, weights there and back, another image size."""

from __future__ import annotations

import pytest
import timm
import torch

from alternas.archs import InputError, build, resized, static_cost, zoo
from alternas.archs.timm import convert, count_timm, to_timm
from nets import lively

NAMES = [("coatnet_0_rw", "coatnet_0_rw_224")]


@pytest.mark.parametrize(("ours", "theirs"), NAMES)
def test_costs_are_timms(ours: str, theirs: str) -> None:
    cost, (wanted, _) = static_cost(zoo.get(ours), 1000, 224), count_timm(theirs, (224, 224), 1000, 3)
    assert (cost.params, cost.macs) == (wanted["params"], wanted["macs"])


@pytest.mark.slow
@pytest.mark.parametrize(("ours", "theirs"), NAMES)
def test_timms_weights_give_timms_outputs_and_go_back(ours: str, theirs: str) -> None:
    torch.manual_seed(0)
    reference, x = lively(timm.create_model(theirs)).eval(), torch.randn(2, 3, 224, 224)
    network = convert(reference)
    assert network.genotype.key == zoo.get(ours).key
    with torch.no_grad():
        wanted = reference(x)
        assert wanted.std() > 0.01, "a reference that says something"
        assert (network(x) - wanted).abs().max() < 1e-4
    twin = timm.create_model(theirs).eval()
    twin.load_state_dict(to_timm(network))
    with torch.no_grad():
        assert torch.equal(twin(x[:1]), reference(x[:1]))


def test_a_resized_net_interpolates_its_tables() -> None:
    network = build(zoo.get("coatnet_0_rw"), 10, 64).eval()
    with pytest.raises(InputError, match="built for a map of 4x4, got 6x6"):
        network(torch.randn(1, 3, 96, 96))
    larger = resized(network, 96)
    assert larger(torch.randn(1, 3, 96, 96)).shape == (1, 10)
    tables = [tensor.shape for key, tensor in larger.state_dict().items() if key.endswith("attn.table")]
    assert tables == [(6, 11, 11)] + [(12, 11, 11)] * 6 + [(12, 5, 5), (24, 5, 5)]
