"""The one file of an export builds every kind of net as we do, without alternas."""

import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from alternas.archs import build
from alternas.results.export.source import more_modules, source_of
from nets import NETS, lively

HEAD = """\
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

"""
CHECK = """
import importlib, pathlib, sys
sys.modules["alternas"] = None
if sys.argv[1] == "torch alone":
    sys.modules["timm"] = None
import torch
from safetensors.torch import load_file
for number in sys.argv[2:]:
    source, folder = importlib.import_module("net" + number), pathlib.Path(number)
    net = source.build()
    net.load_state_dict(load_file(folder / "weights.safetensors"))
    torch.save(net.eval()(torch.load(folder / "x.pt")), folder / "y.pt")
"""


@pytest.mark.slow
@pytest.mark.parametrize("needs", ["torch alone", pytest.param("timm", marks=pytest.mark.slow)])
def test_sources_build_every_kind_of_net(needs: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    x, models = torch.randn(2, 2, 16, 16), {}
    for number, net in enumerate(NETS.values()):
        grouped = net.stem.kind == "bit" or net.style.norm == "group"  # their convs are timm's
        if (grouped or bool(more_modules(net))) != (needs == "timm"):
            continue
        folder, models[number] = tmp_path / str(number), lively(build(net, 5, 16, 2)).eval()
        folder.mkdir()
        (tmp_path / f"net{number}.py").write_text(HEAD + source_of(models[number], "", False)[0], encoding="utf-8")
        save_file(models[number].state_dict(), folder / "weights.safetensors")
        torch.save(x, folder / "x.pt")
    command = [sys.executable, "-c", CHECK, needs, *map(str, models)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    for number, model in models.items():
        with torch.no_grad():
            torch.testing.assert_close(torch.load(tmp_path / str(number) / "y.pt"), model(x))
