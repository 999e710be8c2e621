"""`export`: one trained net of a run as a folder that needs no alternas, checked on real validation images."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...archs import Genotype, InputError, Network
from ...archs.weights import read
from ..ranking.stats import SHARE, mean_ci
from ..render.net import InputSpec, input_spec
from ..runs.arrays import read_array
from ..runs.record import Record
from ..runs.retrained import by_net, spreads
from ..runs.select import facts_of, select_net, trained_weights
from ..runs.store import SAMPLE, read_records
from .formats import chosen, export_network, must_be_free


def export_net(
    run: Path, out: Path, trial: int | None = None, how: str = "accuracy", formats: Sequence[str] = ("package",)
) -> dict[str, Any]:
    """Export one net of a run to the new folder `out`; return what was exported and how it was checked.

    Args:
        run: folder of the run. Of a net that was retrained, the best of its retrainings is taken.
        out: folder to create; it must not exist, or be empty.
        trial: which net; None takes from the front, under the run's own limits, the one that `how` picks.
        how: accuracy, gain or cheapest.
        formats: package, onnx, pt2, timm.

    Raises:
        InputError: if there is no such net or format, the net has no weights, or `out` cannot be written.
        OperationError: if a format cannot be written or does not give the net's outputs.
    """
    chosen(",".join(formats))
    home, record = select_net(run, trial, how)
    weights = trained_weights(home, record)
    must_be_free(out)
    scene, facts = input_spec(home), _facts(run, home, record) | _seeds(home, record)
    images = _sample(home, scene)
    network = read(weights, Genotype.from_dict(record.genotype), scene.image_size)
    _must_agree(home, (len(facts["classes"]), scene.image_size, scene.channels), network)
    return export_network(network, out, formats, facts, images)


def said(facts: dict[str, Any], out: Path) -> list[str]:
    """The lines that the command prints: the net, and for each format its file and how far its outputs are off."""
    lines = [f"{out}: trial {facts['trial']}, accuracy {facts['accuracy']:.4f}"]
    for name, of in facts["formats"].items():
        opset = f", opset {of['opset']}" if "opset" in of else ""
        lines.append(f"  {name:<8} {of['file']:<14} outputs equal to {of['max_abs_difference']:.1e}{opset}")
    if "package" in facts["formats"]:
        lines.append(f"try it:  python {out}/model.py")
    return lines


def _facts(run: Path, home: Path, record: Record) -> dict[str, Any]:
    data = facts_of(home, record)
    return {
        "run": run.resolve().name,
        "trial": record.factors.get("trial", record.trial),  # of the search, for a retrained net
        "accuracy": record.own_accuracy,
        "accuracy_on": f"validation split of {data['name']}, seed {record.seed}",
        "test_accuracy": record.metrics.get("test_accuracy"),
        "trained": {"recipe": record.recipe.get("name"), "epochs": record.recipe.get("epochs"), **record.budget},
        "seed": record.seed,
        "data": data["name"],
        "classes": data["classes"],
        "mean": data["mean"],
        "std": data["std"],
        "pictures": "pictures" in data.get("notes", {}),
        "versions": record.versions,
        "checked_on": f"validation images of {data['name']}",
    }


def _seeds(home: Path, record: Record) -> dict[str, Any]:
    """What the other seeds of a net came to that was trained with several."""
    if record.accuracies:
        found = mean_ci(list(record.accuracies.values()), SHARE)
        return {"seeds": found.n, "seed_chosen": "the first", "accuracy_over_seeds": vars(found)}
    if not record.training:
        return {}
    group = next((g for g in by_net(read_records(home)) if record in g), [record])
    return {"seeds": len(group)} | {f"{name}_over_seeds": found for name, found in spreads(group).items()}


def _sample(run: Path, scene: InputSpec) -> np.ndarray:
    """The validation images that a run keeps."""
    image = (scene.channels, *scene.image_size)

    def fits(shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return shape[1:] == image and 0 < shape[0] <= SAMPLE and dtype.kind in "uif"

    return read_array(run / "sample.npz", "x", fits, f"images of shape {image}, 1 to {SAMPLE} of them")


def _must_agree(home: Path, said: tuple[int, tuple[int, int], int], net: Network) -> None:
    """Raise InputError if run.json speaks of other classes, image size and channels than the weights."""
    if said != (its := (net.num_classes, net.image_size, net.in_chans)):
        rule = "classes, image size and channels must be those of its weights"
        raise InputError(f"{home / 'run.json'}: {rule}, {its}, got {said}")
