"""The one file of an export builds every kind of net as we do, without alternas."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from nets import NETS
from safetensors.torch import save_file
from test_blocks import lively

from alternas.archs import build
from alternas.results.export.source import net_source, timm_modules

CHECK = """
import json, sys
sys.modules["alternas"] = None
if sys.argv[1] == "torch alone":
    sys.modules["timm"] = None
import torch
from safetensors.torch import load_file
from source import Genotype, build
net = build(Genotype.from_json(open("genotype.json").read()), 5, 16, 2)
net.load_state_dict(load_file("weights.safetensors"))
torch.save(net.eval()(torch.load("x.pt")), "y.pt")
"""
KINDS = ["bottleneck", "post bottleneck", "msa", "msa_a", "bit trunk", "bit", "mbconv", "transformer", "vit relative"]


@pytest.mark.parametrize("name", KINDS)
def test_sources_build_every_kind_of_net(name: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, model, x = NETS[name], lively(build(NETS[name], 5, 16, 2)).eval(), torch.randn(2, 2, 16, 16)
    (tmp_path / "source.py").write_text("from __future__ import annotations\n" + net_source(net))
    (tmp_path / "genotype.json").write_text(net.to_json())
    save_file(model.state_dict(), tmp_path / "weights.safetensors")
    torch.save(x, tmp_path / "x.pt")
    alone = "timm" if timm_modules(net) else "torch alone"
    done = subprocess.run([sys.executable, "-c", CHECK, alone], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with torch.no_grad():
        torch.testing.assert_close(torch.load(tmp_path / "y.pt"), model(x))
