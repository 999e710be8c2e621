"""The loss on a plane, against nets with weights set by hand and closed forms."""

from __future__ import annotations

import copy
from functools import partial

import pytest
import torch
import torch.nn.functional as F
from analysed import net_of, pixels

from alternas.archs import InputError
from alternas.results.analysis import landscape
from alternas.results.analysis.landscape import direction, minima, plane
from alternas.results.analysis_tools.inputs import AnalysisInput, Images, Objective


def test_each_filters_direction_has_its_norm() -> None:
    net = net_of("hybrid")
    found = direction(net, torch.Generator().manual_seed(1))
    for name, p in net.named_parameters():
        if p.ndim == 1 or "positions" in name:
            assert not found[name].any()
        else:
            assert torch.allclose(found[name].flatten(1).norm(dim=1), p.flatten(1).norm(dim=1), rtol=1e-4)
            assert found[name].any()


@pytest.mark.parametrize("name", ["msa", "vit 2-D", "vit relative", "per head"])
def test_position_tables_stay(name: str) -> None:
    net = net_of(name)
    found = direction(net, torch.Generator().manual_seed(1))
    tables = [key for key in found if key.endswith((".table", ".rows", ".columns"))]
    assert tables
    assert not any(found[key].any() for key in tables)


def test_a_plane_is_that_of_weights_set_by_hand() -> None:
    net, x, y = net_of("basic"), pixels(6), torch.randint(5, (6,))
    before = {key: value.clone() for key, value in net.state_dict().items()}
    generator = torch.Generator().manual_seed(2)
    first, second = direction(net, generator), direction(net, generator)
    assert not torch.equal(first["head.weight"], second["head.weight"])
    smooth = partial(F.cross_entropy, label_smoothing=0.3)
    matrices = {name: 0.2 for name, p in net.named_parameters() if p.ndim > 1}
    rows = plane(net, [(x[:4], y[:4]), (x[4:], y[4:])], (first, second), 3, Objective(smooth, matrices))
    assert [(row["a"], row["b"]) for row in rows] == [(a, b) for a in (-1, 0, 1) for b in (-1, 0, 1)]
    for row in rows:
        other = copy.deepcopy(net)
        with torch.no_grad():
            for name, p in other.named_parameters():
                p.add_(row["a"] * first[name] + row["b"] * second[name])
            assert row["nll"] == pytest.approx(F.cross_entropy(other(x), y).item(), rel=1e-4)
            assert row["data_loss"] == pytest.approx(smooth(other(x), y).item(), rel=1e-4)
        squares = sum(p.square().sum().item() for p in other.parameters() if p.ndim > 1)
        assert row["l2"] == pytest.approx(0.1 * squares, rel=1e-4)
        assert row["loss"] == row["data_loss"] + row["l2"] != row["nll"] + row["l2"]
    assert all(torch.equal(value, before[key]) for key, value in net.state_dict().items())


def test_soft_targets() -> None:
    net, x = net_of("basic"), pixels(4)
    y = torch.rand(4, 5).softmax(1)
    found, _ = landscape.losses_at(net, dict(net.named_parameters()), [(x, y)], Objective())
    with torch.no_grad():
        assert found == pytest.approx(-(y * net(x).log_softmax(1)).sum(1).mean().item(), rel=1e-5)


def test_minima_of_a_drawn_surface() -> None:
    """Two wells: (a² - 1/4)² + b²."""
    side = 9
    steps = [2 * i / (side - 1) - 1 for i in range(side)]
    rows = [{"a": a, "b": b, "loss": (a * a - 0.25) ** 2 + b * b} for a in steps for b in steps]
    assert [(row["a"], row["b"]) for row in minima(rows, side)] == [(-0.5, 0), (0.5, 0)]


def test_finding() -> None:
    net, x = net_of("basic"), pixels(8)
    subject = AnalysisInput("basic", net, Images(x, net(x).argmax(1), torch.zeros(2), torch.ones(2)))
    found = landscape.analyse(subject, side=3)
    middle = found.rows[4]
    by_name = {finding.name: finding for finding in found.findings}
    assert by_name["loss at the weights"].value == middle["loss"]
    rise = [row["loss"] - middle["loss"] for row in found.rows if row is not middle]
    assert by_name["rise of the loss to the border"].value == pytest.approx(sum(rise) / 8)
    assert by_name["lowest point below the weights"].value == -min(0, *rise)
    assert landscape.analyse(subject, side=3).rows == found.rows
    with pytest.raises(InputError, match="odd and at least 3, got 4"):
        landscape.analyse(subject, side=4)
