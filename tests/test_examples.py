"""The examples run, as they stand or with fewer searches."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

import alternas
from alternas.results.runs.store import read_settings
from command_line import Run, records

EXAMPLES = Path(alternas.__file__).parent / "examples"
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def said(folder: Path, *words: str) -> str:
    """What a Python process with these arguments prints, in a folder that has the examples."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    done = subprocess.run([sys.executable, *words], cwd=folder, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def told(served: Run, folder: Path, *words: str) -> str:
    """What `alternas WORDS` prints, in a folder that has the examples."""
    shutil.copytree(EXAMPLES, folder, dirs_exist_ok=True)
    code, out, err = served(folder, *words)
    assert code == 0, err
    return out


def test_a_space_in_a_file(served: Run, tmp_path: Path) -> None:
    """A search of two trials; the same again has nothing to do, a changed file is another space."""
    words = ("search", "./my_space.py", "--data", "digits", "--trials", "2", "--epochs", "1", "--json")
    front = json.loads(told(served, tmp_path, *words))
    before = records(tmp_path, "my_space-digits")
    assert sum(record["kind"] == "search" for record in before) >= 2
    facts = read_settings(tmp_path / "runs/my_space-digits")
    assert facts["space_source"] == (EXAMPLES / "my_space.py").read_text(encoding="utf-8")
    assert facts["settings"]["genes"]["heads3"] == [2, 4, 8]
    assert json.loads(told(served, tmp_path, *words)) == front
    shutil.copytree(EXAMPLES, tmp_path / "elsewhere")
    elsewhere = (words[0], "elsewhere/my_space.py", *words[2:])
    assert json.loads(told(served, tmp_path, *elsewhere)) == front, "the same source in another place"
    (tmp_path / "my_space.py").write_text(facts["space_source"] + "# changed\n", encoding="utf-8")
    code, _, err = served(tmp_path, *words)
    assert (code, err.count("\n"), "space is 'my_space.py of source " in err) == (2, 1, True)
    assert records(tmp_path, "my_space-digits") == before


def test_the_notebook(tmp_path: Path) -> None:
    """Cell by cell in a kernel; the search says its compute, and shows its front in one output, drawn to the end."""
    nbformat, nbclient = pytest.importorskip("nbformat"), pytest.importorskip("nbclient")
    notebook = nbformat.read(EXAMPLES / "notebook.ipynb", 4)
    assert not any(cell.get("outputs") for cell in notebook.cells), "it is kept without outputs"
    nbclient.NotebookClient(notebook, timeout=600, resources={"metadata": {"path": tmp_path}}).execute()
    cells = {cell.source: cell.outputs for cell in notebook.cells if cell.cell_type == "code"}
    shown = [output["data"]["text/html"] for output in outputs(cells, "run = ") if "data" in output]
    compute, view = shown
    assert "compute: about " in compute
    assert re.search(r"(\d+) of \1 nets", view)
    assert "front so far" in view
    assert "<img" in outputs(cells, "run")[0]["data"]["text/html"]
    assert "<img" in outputs(cells, "best = run.best()\nbest")[0]["data"]["text/html"]
    assert (tmp_path / "notebook-best" / "model.py").exists()


def outputs(cells: dict[str, Any], source: str) -> list[Any]:
    """Of the cell that is `source`, or begins with it."""
    return cells.get(source) or next(found for text, found in cells.items() if text.startswith(source))


def test_own_images(tmp_path: Path) -> None:
    out = said(tmp_path, "own_images.py")
    assert "3 classes, 108 pictures to train on" in out
    assert "accuracy" in out
    assert out.splitlines()[-1].startswith("drawings/circle/0.png is a ")
    assert (tmp_path / "own-images-best" / "model.py").exists()


def test_compare_spaces(tmp_path: Path) -> None:
    code = "import compare_spaces as c; c.SEEDS, c.TRIALS, c.EPOCHS = (0, 1), 2, 1; c.main()"
    out = said(tmp_path, "-c", code)
    volumes = json.loads(out.splitlines()[-1])
    seeds = ["0", "1"]
    assert {space: list(by_seed) for space, by_seed in volumes.items()} == {"resnet": seeds, "alternet": seeds}
    assert "alternet against resnet: " in out
    assert all(0 <= volume <= 1 for by_seed in volumes.values() for volume in by_seed.values())
    assert Image.open(tmp_path / "compare_spaces.png").size == (700, 450)


def test_inside_tune(served: Run, tmp_path: Path) -> None:
    out = said(tmp_path, "inside_tune.py")
    rows = records(tmp_path, "inside-tune")
    assert sum(row["kind"] == "search" and row["status"] in ("ok", "pruned") for row in rows) == 6
    assert " tasks, 0 lost\n" in out
    assert "trial " in out.splitlines()[-1]
    legs = list((tmp_path / "tune-results/inside-tune").glob("trial*-to-*"))
    assert len(legs) > len(rows), "a net that was promoted has several"
    assert all(list(leg.glob("events.out.tfevents.*")) for leg in legs)
    shown = json.loads(told(served, tmp_path, "front", "inside-tune", "--json"))
    assert [f"trial {net['trial']}: accuracy {net['accuracy']:.3f} " in out for net in shown] == [True] * len(shown)
    assert "0 tasks, 0 lost" in said(tmp_path, "inside_tune.py")


def test_a_training_with_a_loss_and_a_loader_of_its_own(served: Run, tmp_path: Path) -> None:
    """Searched, resumed with nothing to do, retrained."""
    words = ("search", "resnet", "--data", "digits", "--trainer", "./my_training.py", "--trials", "1", "--epochs", "2")
    front = json.loads(told(served, tmp_path, *words, "--name", "own", "--json"))
    assert max(net["accuracy"] for net in front) > 0.3
    assert json.loads(told(served, tmp_path, *words, "--name", "own", "--json")) == front
    again = ("retrain", "own", "--top", "1", "--seeds", "1", "--trainer", "my_training.py", "--json")
    (row,) = json.loads(told(served, tmp_path, *again))
    assert row["accuracy"]["mean"] > 0.3


def test_segmentation(served: Run, tmp_path: Path) -> None:
    """Its miou is recorded; the exported maps and head give what was measured."""
    words = "search resnet --trainer ./segmentation.py --metric miou --trials 1 --epochs 8 --name seg"
    told(served, tmp_path, *words.split())
    rows = records(tmp_path, "seg")
    assert all(0 < row["metrics"]["miou"] < 1 for row in rows)
    told(served, tmp_path, "export", "seg", "--out", "best")
    facts = json.loads((tmp_path / "best/config.json").read_text(encoding="utf-8"))
    assert (facts["backbone"], facts["head"]["0.weight"][0]) == (True, 3)
    assert "Its maps were trained, not its classifier" in (tmp_path / "best/README.md").read_text(encoding="utf-8")
    code = """
from pathlib import Path
import torch
from safetensors.torch import load_file
from alternas.archs.network import Features
from alternas.archs.weights import read
import segmentation as s
features = Features(read(Path("best/weights.safetensors")))
head = s.Head(features.channels)
head.load_state_dict(load_file("best/head.safetensors"))
print(s.scores(torch.nn.Sequential(features, head), *s.pictures(128, seed=1))["accuracy"].item())
"""
    assert float(said(tmp_path, "-c", code)) == pytest.approx(facts["accuracy"], abs=1e-5)


def test_a_training_by_hugging_faces_trainer(served: Run, tmp_path: Path) -> None:
    """With rungs a net's curve is the one without: Trainer goes on from its checkpoint where it stopped."""
    pytest.importorskip("transformers")
    pytest.importorskip("accelerate")
    words = ("search", "resnet", "--data", "digits", "--trainer", "./huggingface.py", "--trials", "1", "--epochs", "8")
    curves = []
    for name, more in (("whole", ()), ("rungs", ("--scheduler", "mo-asha", "--rungs", "1/8,3/4"))):
        told(served, tmp_path, *words, "--name", name, *more)
        rows = records(tmp_path, name)
        (row,) = [row for row in rows if row["kind"] == "search"]
        curves.append({point["step"]: point for point in row["curve"]})
    assert (list(curves[0]), list(curves[1])) == ([16, 32], [4, 16, 24, 32])
    assert {step: curves[1][step] for step in curves[0]} == curves[0]
    assert curves[0][32]["accuracy"] > 0.4, "a quarter of the pictures have each class"


def test_several_labels(served: Run, tmp_path: Path) -> None:
    words = "search resnet --trainer ./several_labels.py --metric map --trials 1 --epochs 8 --name l"
    told(served, tmp_path, *words.split())
    rows = records(tmp_path, "l")
    assert all(row["metrics"]["map"] > 0.5 for row in rows), "half of the pictures have each"
