"""`export`: a folder with genotype, weights, README and a Python file that loads them.

The folder needs torch, and timm where a part of the net is timm's; never alternas. Before it
is kept, it is loaded in a fresh process in which alternas cannot be imported, and its outputs on
real validation images are compared with those of the net built here.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any
from zipfile import BadZipFile

import numpy as np
import torch

from ...archs import Genotype, InputError, OperationError
from ...archs.weights import read
from ..chosen import chosen_net, facts_of, trained_weights
from ..noise import Spread, text
from ..record import Record
from ..retrained import by_net, spreads
from ..show import Scene, scene_of
from ..store import read_records, write_json
from .source import net_source

TOLERANCE = 1e-4
CHECK = """
import sys; sys.modules["alternas"] = None
sys.path.insert(0, sys.argv[1])
import numpy, torch, model
with torch.no_grad():
    logits = model.load()(model.preprocess(torch.from_numpy(numpy.load(sys.argv[2]))))
numpy.save(sys.argv[3], logits.numpy())
"""


def export_net(run: Path, out: Path, trial: int | None = None, how: str = "accuracy") -> dict[str, Any]:
    """Export one net of a run to the new folder `out`; return what was exported and how it was checked.

    Args:
        run: folder of the run. Of a net that was retrained, the best of its retrainings is taken.
        out: folder to create; it must not exist, or be empty.
        trial: which net; None takes the best retrained one, or from the front the one that `how` picks.
        how: accuracy, gain or cheapest.

    Raises:
        InputError: if there is no such net, it has no weights, or `out` cannot be written.
        OperationError: if the exported folder does not give the net's outputs.
    """
    home, record = chosen_net(run, trial, how)
    weights = trained_weights(home, record)
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise InputError(f"out: {out} exists and is not an empty folder")
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "export"
        draft.mkdir()
        facts = _facts(run, home, record) | _seeds(home, record)
        _fill(draft, record, weights, facts)
        facts["max_abs_difference"] = _check(draft, weights, record, (home, scene_of(home)))
        write_json(draft / "config.json", facts)
        (draft / "README.md").write_text(_readme(facts))
        _place(draft, out)
    return facts


def _seeds(home: Path, record: Record) -> dict[str, Any]:
    """What the other seeds of a retrained net came to."""
    if not record.training:
        return {}
    group = next((g for g in by_net(read_records(home)) if record in g), [record])
    return {"seeds": len(group)} | {f"{name}_over_seeds": found for name, found in spreads(group).items()}


def _facts(run: Path, home: Path, record: Record) -> dict[str, Any]:
    data = facts_of(home, record)
    return {
        "run": run.resolve().name,
        "trial": record.factors.get("trial", record.trial),  # of the search, for a retrained net
        "family": record.family,
        "key": record.key,
        "accuracy": record.accuracy,
        "accuracy_on": f"validation split of {data['name']}, seed {record.seed}",
        "test_accuracy": record.metrics.get("test_accuracy"),
        "trained": {"recipe": record.recipe.get("name"), "epochs": record.recipe.get("epochs"), **record.budget},
        "macs": record.cost["macs"],
        "params": record.cost["params"],
        "data": data["name"],
        "image_size": data["image_size"],
        "in_chans": data["in_chans"],
        "classes": data["classes"],
        "mean": data["mean"],
        "std": data["std"],
        "pictures": "pictures" in data.get("notes", {}),
        "versions": record.versions,
    }


def _fill(draft: Path, record: Record, weights: Path, facts: dict[str, Any]) -> None:
    net = Genotype.from_dict(record.genotype)
    write_json(draft / "genotype.json", net.to_dict())
    write_json(draft / "config.json", facts)
    shutil.copyfile(weights, draft / "weights.safetensors")
    template = (Path(__file__).parent / "model_template.txt").read_text()
    (draft / "model.py").write_text(template.replace("# SOURCES", net_source(net)))


def _check(draft: Path, weights: Path, record: Record, place: tuple[Path, Scene]) -> float:
    """Largest absolute difference between the logits of the folder, elsewhere, and of the net, here."""
    facts = json.loads((draft / "config.json").read_text())
    home, scene = place
    images = _sample(home, scene)
    net = read(weights, Genotype.from_dict(record.genotype), scene.image_size)
    said = (len(facts["classes"]), scene.image_size, scene.channels)
    if said != (its := (net.num_classes, net.image_size, net.in_chans)):
        rule = "classes, image size and channels must be those of its weights"
        raise InputError(f"{home / 'run.json'}: {rule}, {its}, got {said}")
    mean, std = (torch.tensor(facts[name]).view(1, -1, 1, 1) for name in ("mean", "std"))
    with torch.no_grad():
        here = net.eval()((torch.from_numpy(images).float() - mean) / std).numpy()
    difference = float(np.abs(here - _elsewhere(draft, images)).max())
    if not difference < TOLERANCE:
        raise OperationError(f"export check: outputs differ by {difference:.1e}, more than {TOLERANCE:.0e}")
    return difference


def _sample(run: Path, scene: Scene) -> np.ndarray:
    path, shape = run / "sample.npz", (scene.channels, *scene.image_size)
    try:
        with np.load(path, allow_pickle=False) as file:
            images = file["x"]
    except (OSError, ValueError, TypeError, KeyError, EOFError, BadZipFile):
        raise InputError(f"{path}: not readable as the validation images kept there") from None
    if len(images) == 0 or images.shape[1:] != shape:
        raise InputError(f"{path}: must hold images of shape {shape}, got {images.shape}")
    return images


def _elsewhere(draft: Path, images: np.ndarray) -> np.ndarray:
    given, found = draft.parent / "images.npy", draft.parent / "logits.npy"
    np.save(given, images)
    command = [sys.executable, "-c", CHECK, str(draft), str(given), str(found)]
    done = subprocess.run(command, capture_output=True, text=True, cwd=draft.parent)
    if done.returncode:
        raise OperationError(f"export check: the exported folder does not load: {done.stderr.strip()[-500:]}")
    shutil.rmtree(draft / "__pycache__", ignore_errors=True)
    return np.load(found)


def _place(draft: Path, out: Path) -> None:
    try:
        shutil.copytree(draft, out, dirs_exist_ok=True)
    except OSError as error:
        raise InputError(f"out: {out} cannot be written ({error.strerror or error})") from None


def _said_of_seeds(facts: dict[str, Any]) -> dict[str, str]:
    """Rows of the README about test accuracy and the other seeds, where they are known."""
    names = {"accuracy_over_seeds": "accuracy over seeds", "test_accuracy_over_seeds": "test accuracy over seeds"}
    return {said: text(Spread(**facts[name])) for name, said in names.items() if facts.get(name)}


def _readme(facts: dict[str, Any]) -> str:
    height, width = facts["image_size"]
    names = ", ".join(facts["classes"][:20]) + (" ..." if len(facts["classes"]) > 20 else "")
    rows = {
        "family": facts["family"],
        "accuracy": f"{facts['accuracy']:.4f} ({facts['accuracy_on']})",
        **_said_of_seeds(facts),
        "trained": "{recipe}, {epochs} epochs, {done} steps".format_map({"done": "?"} | facts["trained"]),
        "MACs": f"{facts['macs']:,} (batch 1; multiply-accumulates of conv, linear and attention)",
        "parameters": f"{facts['params']:,}",
        "input": f"{facts['in_chans']} x {height} x {width}, raw values as in the data set {facts['data']}",
        "classes": f"{len(facts['classes'])}: {names}",
        "checked": f"outputs on validation images equal those of the searched net to {facts['max_abs_difference']:.1e}",
    }
    table = "\n".join(f"| {name} | {value} |" for name, value in rows.items())
    sizes = f"--image-size {height}x{width} --classes {len(facts['classes'])} --channels {facts['in_chans']}"
    usage = (Path(__file__).parent / "readme_template.txt").read_text()
    return usage.replace("TITLE", f"{facts['family']} {facts['key']}").replace("TABLE", table).replace("SIZES", sizes)
