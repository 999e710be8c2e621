"""RepViTs of the zoo are timm's: counts, outputs, weights taken over and given back; fused they give the same."""

from __future__ import annotations

import pytest
import torch

from alternas.archs import fused, static_cost, zoo
from alternas.archs.timm import convert, count_timm, create, to_timm
from nets import lively

NAMES = [name for name in zoo.names() if name.startswith("repvit")]
SMALLEST = "repvit_m0_9"


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_costs_are_those_counted_of_timms_nets(name: str) -> None:
    cost, (counts, _) = static_cost(zoo.get(name, 224), 1000, 224), count_timm(name, (224, 224), 1000, 3)
    assert (cost.params, cost.macs) == (counts["params"], counts["macs"])


@pytest.mark.slow
@pytest.mark.parametrize("name", [n if n == SMALLEST else pytest.param(n, marks=pytest.mark.slow) for n in NAMES])
def test_weights_pass_from_timm_and_back(name: str) -> None:
    torch.manual_seed(0)
    theirs = lively(create(name, False, 1000, 3)).eval()
    ours, x = convert(theirs), torch.randn(2, 3, 224, 224)
    assert ours.genotype.key == zoo.get(name).key
    with torch.no_grad():
        torch.testing.assert_close(ours(x), theirs(x), atol=1e-4, rtol=1e-4)
        torch.testing.assert_close(fused(ours)(x), theirs(x), atol=1e-4, rtol=1e-4)
    create(name, False, 1000, 3).load_state_dict(to_timm(ours), strict=True)
