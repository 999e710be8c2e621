"""Exports where they are used: the page of docs/, the card's own lines, an environment without alternas."""

import json
import os
import re
import subprocess
import sys
import sysconfig
import venv
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

import alternas
from alternas.archs import Genotype, build, zoo
from alternas.archs.weights import save
from alternas.results.export.source import more_modules, source_of
from alternas.results.export.write import export_network
from nets import NETS, lively
from runs import finished_run

PAGE = Path(alternas.__file__).parent / "docs" / "exporting.md"
pytestmark = pytest.mark.slow


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)


@pytest.mark.timeout(900)  # eight processes that import torch
def test_the_page_and_the_cards_do_what_they_show(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The page's commands, then its Python as one session; then that of the card that was written."""
    monkeypatch.chdir(tmp_path)
    folder = finished_run("all-digits")
    (folder / "weights").mkdir()
    net = zoo.alternet("basic", (1, 2), (0, 1), (1, 1), 0, width=4)
    save(build(net, 10, 8, 1), folder / "weights" / f"{net.key}.safetensors")
    np.savez(folder / "sample.npz", x=np.random.default_rng(0).integers(0, 17, (6, 1, 8, 8)), y=np.arange(6))
    text = PAGE.read_text(encoding="utf-8")
    here = f'alternas() {{ "{sys.executable}" -m alternas "$@"; }}; python() {{ "{sys.executable}" "$@"; }}; set -e\n'
    done = subprocess.run(["bash", "-c", here + "\n".join(blocks(text, "bash"))], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "onnx      model.onnx      outputs equal to" in done.stdout
    assert f"alternet {net.key}: " in done.stdout, "python best/model.py"
    session = subprocess.run([sys.executable, "-c", "\n".join(blocks(text, "python"))], capture_output=True, text=True)
    assert session.returncode == 0, session.stderr
    card = blocks((tmp_path / "best" / "README.md").read_text(encoding="utf-8"), "python")
    assert len(card) == 5
    images = "import numpy\nimages = numpy.zeros((2, 1, 8, 8), numpy.float32)\n"
    lines = "\n".join([images, *card])
    done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, cwd="best")
    assert done.returncode == 0, done.stderr


USE = """
import importlib.util, json, sys
assert importlib.util.find_spec("alternas") is None, "alternas is there"
folder = sys.argv[1]
sys.path.insert(0, folder)
import numpy, torch
x = torch.from_numpy(numpy.load(sys.argv[2]))
import model
with torch.no_grad():
    ours = model.load()(model.preprocess(x))
    import timm, timm_model
    theirs = timm.create_model(timm_model.NAME, pretrained=True).eval()(x)
    maps = timm.create_model(timm_model.NAME, pretrained=True, features_only=True).eval()(x)
numpy.savez(sys.argv[3], ours=ours, theirs=theirs)
print(json.dumps([list(m.shape) for m in maps]))
"""


@pytest.mark.parametrize("name", ["msa_bottleneck", "hybrid", "mbconv"])
def test_a_new_environment_with_these_torch_and_timm_and_no_alternas(name: str, tmp_path: Path) -> None:
    """A venv that sees this one's packages through a .pth file, which does not carry an editable alternas along.

    It shows that package and timm module need nothing of alternas; not that they run with other versions.
    """
    net: Genotype = NETS[name]
    network = build(net, 5, 16, 2).eval()
    export_network(network, tmp_path / "out", ("timm",))
    venv.create(tmp_path / "venv", with_pip=False, symlinks=True)
    python = tmp_path / "venv" / "bin" / "python"
    where = [str(python), "-I", "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"]
    site = subprocess.run(where, capture_output=True, text=True, check=True).stdout.strip()
    (Path(site) / "beside.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    x = np.random.default_rng(0).normal(size=(3, 2, 16, 16)).astype(np.float32)
    np.save(tmp_path / "x.npy", x)
    words = [str(tmp_path / part) for part in ("out", "x.npy", "y.npz")]
    environment = {"PATH": os.environ["PATH"], "HF_HUB_OFFLINE": "1", "HOME": str(tmp_path)}
    done = subprocess.run(
        [str(python), "-I", "-c", USE, *words], capture_output=True, text=True, env=environment, cwd=tmp_path
    )
    if "alternas is there" in done.stderr:
        pytest.skip("alternas is installed as a wheel here, and the .pth file shows it too")
    assert done.returncode == 0, done.stderr
    import torch

    with torch.no_grad():
        wanted = network(torch.from_numpy(x)).numpy()
    with np.load(tmp_path / "y.npz") as found:
        np.testing.assert_allclose(found["ours"], wanted, atol=1e-5)
        np.testing.assert_allclose(found["theirs"], wanted, atol=1e-5)
    assert [shape[1] for shape in json.loads(done.stdout)] == [stage.channels for stage in net.stages]


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
