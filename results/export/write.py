"""A net as a folder that needs no alternas, in the formats asked for, each checked before the folder is kept.

A folder always holds weights.safetensors, config.json and the card, README.md; of a net of ours genotype.json too.
"""

import re
import shutil
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from ...archs import InputError, Network, OperationError
from ...archs.candidate import tuned_values
from ...archs.children import mark_children
from ...archs.errors import short_repr
from ...archs.files import atomic_write, read_own
from ...archs.pictures import LEVELS
from ...archs.timm_net import picture_moments, side_seen
from ...archs.timm_network import AnyNetwork
from ...archs.weights import save, shapes
from ..ranking.metric import run_metric, validation_metrics
from ..ranking.stats import mean_ci, resolution_of
from ..render.describe_net import InputSpec, input_spec
from ..runs.arrays import read_array
from ..runs.record import Record
from ..runs.retrained import by_net, spreads
from ..runs.store import SAMPLE, read_data_facts, read_records, read_settings, write_json
from ..runs.trained_weights import facts_of, select_net, trained_head, trained_network, trained_weights
from . import package
from .card import HEAD, card, found_text
from .check import TOLERANCE, check_folder, warnings
from .export_net import ExportNet, ScoringImages, export_net_of
from .formats import FORMATS, check_formats

# What the exporters of torch raise where they cannot: there is no one base.
FAILURES = (RuntimeError, ValueError, TypeError, AssertionError, LookupError, AttributeError)
ImagesOf = Callable[[Path, Record], ScoringImages]  # the images of a net's data, of its run's folder


def export_net(
    run: Path,
    out: Path,
    trial: int | None = None,
    how: str = "recommended",
    formats: Sequence[str] = ("package",),
    images_of: ImagesOf | None = None,
) -> dict[str, Any]:
    """Export one net of a run, see `select_net`, to the new folder `out`; return what config.json says.

    `images_of` reads the images that formats of lower precision are made and measured on. InputError if there is no
    such net or format, the net has no weights, or `out` is taken; OperationError if a format fails or gives other
    outputs.
    """
    names = check_formats(",".join(formats))
    home, record = select_net(run, trial, how)
    trained_weights(home, record)
    _must_be_free(out)
    spec, facts = input_spec(home), _facts(run, home, record)
    images = None if _brings_images(home) else sample_images(home, spec)
    network = trained_network(home, record)
    ours = (network.num_classes, network.image_size, network.in_chans)
    seen = side_seen(network.genotype, spec.image_size)
    if (in_run := (len(facts["classes"]), seen, spec.channels)) != ours:
        rule = "classes, image size and channels must be those of its weights"
        raise InputError(f"{home / 'run.json'}: {rule}, {ours}, got {in_run}")
    scoring = _scoring(names, facts, images_of, home, record)
    return export_network(network, out, formats, facts, images, trained_head(home, record), scoring)


def _scoring(
    names: Sequence[str], facts: Mapping[str, Any], images_of: ImagesOf | None, home: Path, record: Record
) -> ScoringImages | None:
    """The images for formats of lower precision; None without such a format. InputError if they cannot be had."""
    lower = [name for name in names if not FORMATS[name].exact]
    if not lower:
        return None
    if facts["backbone"]:
        raise InputError(f"formats: {lower[0]} is measured by its classes, which a backbone does not tell")
    if images_of is None:
        rule = "is measured on the images of the run's data, which `alternas export` reads; none were given"
        raise InputError(f"formats: {lower[0]} {rule}")
    return images_of(home, record)


def _facts(run: Path, home: Path, record: Record) -> dict[str, Any]:
    data, metric = facts_of(home, record), run_metric(run)
    measured = validation_metrics(record, metric)
    ranked_by = {} if metric.is_accuracy else {"metric": metric.name, "value": measured[metric.name]}
    facts = {
        "run": run.resolve().name,
        "trial": record.factors.get("trial", record.trial),  # of the search, for a retrained net
        "accuracy": measured.get("accuracy"),
        "accuracy_on": f"validation split of {data['name']}, seed {record.seed}",
        "test_accuracy": record.metrics.get("test_accuracy"),
        **ranked_by,
        "trained": {
            "recipe": record.recipe.get("name"),
            "epochs": record.recipe.get("epochs"),
            **_tuned(run, record),
            **record.budget,
        },
        "seed": record.seed,
        "data": data["name"],
        "classes": data["classes"],
        "several_labels": "positives" in data,
        **_moments(data, record),
        "pictures": "pictures" in data.get("notes", {}),
        "levels": data.get("notes", {}).get("levels", list(LEVELS)),
        "versions": record.versions,
        "trainer": record.runtime.get("trainer", ""),
        "backbone": record.runtime.get("trained") == "features",
        "checked_on": f"validation images of {data['name']}",
    }
    if record.folds or record.is_cut:
        facts |= {"accuracy_on": f"cross-validated over {record.runtime.get('judged', 0):,} pictures of {data['name']}"}
    if record.is_cut:
        facts |= {"weights_of_cut": record.weights}
    if _brings_images(home):
        facts |= {"accuracy_on": f"as {data['name']} measures it, seed {record.seed}", "checked_on": "random images"}
    images = data.get("images", {})
    if record.folds and record.accuracies:
        facts |= {"weights_of_fold": f"1 of {len(record.folds)}: trained without its pictures"}
    elif record.accuracies:
        scores = [metric.value(score) for score in record.accuracies.values()]
        over_seeds = mean_ci(scores, metric.within, resolution_of(metric.name, images))
        facts |= {"seeds": over_seeds.n, "seed_chosen": "the first", f"{metric.name}_over_seeds": vars(over_seeds)}
    elif record.kind in ("retrain", "study"):
        group = next((g for g in by_net(read_records(home)) if record in g), [record])
        found = spreads(group, metric, images)
        facts |= {"seeds": len(group)} | {f"{name}_over_seeds": value for name, value in found.items()}
    return facts


def _moments(data: Mapping[str, Any], record: Record) -> dict[str, Any]:
    """Mean and std that raw values are normalised with: the data's, or those that make pictures of 0 to 1 of them."""
    mean, std = data["mean"], data["std"]
    if record.is_cut:
        mean, std = map(list, picture_moments(mean, std, data["white_level"]))
    return {"mean": mean, "std": std, "white_level": data.get("white_level")}


def _tuned(run: Path, record: Record) -> dict[str, Any]:
    """The values of those fields of its recipe that the search drew; {} where it drew none."""
    values: dict[str, Any] = {}
    for name in tuned_values(read_settings(run).get("settings", {}).get("tune", {})):
        field, _, inner = name.partition(".")
        value = record.recipe.get(field)
        values[name] = value.get(inner) if inner and isinstance(value, dict) else value
    return {"tuned": values} if values else {}


def _brings_images(home: Path) -> bool:
    """Whether a user's own training brought the images, so that the run keeps none."""
    return read_data_facts(home).get("images", {}).get("val") == 0


def sample_images(run: Path, spec: InputSpec) -> np.ndarray:
    """The validation images that a run keeps."""
    image = (spec.channels, *spec.image_size)

    def fits(shape: tuple[int, ...], dtype: np.dtype) -> bool:
        return shape[1:] == image and 0 < shape[0] <= SAMPLE and dtype.kind in "uif"

    return read_array(run / "sample.npz", "x", fits, f"images of shape {image}, 1 to {SAMPLE} of them")


def summary_lines(facts: dict[str, Any], out: Path) -> list[str]:
    """Lines for the terminal: the net, and for each format its file and how far its outputs are off."""
    measured = (facts["metric"], facts["value"]) if "metric" in facts else ("accuracy", facts["accuracy"])
    over_seeds = facts.get(f"{measured[0]}_over_seeds")
    mean = f" (seed {facts['seed']}; {over_seeds['n']} seeds {over_seeds['mean']:.4f})" if over_seeds else ""
    lines = [f"{out}: trial {facts['trial']}, {measured[0]} {measured[1]:.4f}{mean}"]
    for name, of in facts["formats"].items():
        opset = f", opset {of['opset']}" if "opset" in of else ""
        lines.append(f"  {name:<9} {of['file']:<15} {found_text(name, of)}{opset}")
    lines += [f"warning: {line}" for line in warnings(facts["formats"])]
    if "package" in facts["formats"]:
        lines.append(f"try it:  python {out}/model.py")
    return lines


def export_network(
    network: AnyNetwork,
    out: Path,
    formats: Sequence[str] = ("package",),
    about: Mapping[str, Any] | None = None,
    images: np.ndarray | None = None,
    head: Path | None = None,
    scoring: ScoringImages | None = None,
) -> dict[str, Any]:
    """Export any net to the new folder `out`; return what config.json says, with how each format was checked.

    Of one of timm's nets "timm" is not written: timm has it, or a few lines make it. `about` is what is known of the
    net (classes, mean, std, accuracy and so on), over what the net itself says; `images`, (N, C, H, W) in the data's
    own values, are checked on, random ones if None; `head` is a file of a head of the user's own; `scoring` as of
    `export_net_of`. Errors as of `export_net`; nothing is left then.
    """
    names = check_formats(",".join(formats))
    mark_children()  # what exporters start ends with this process
    if not isinstance(network, Network):
        names = tuple(name for name in names if name != "timm")
    _must_be_free(out)
    about = dict(about or {}) | ({"head": {name: list(shape) for name, shape in shapes(head).items()}} if head else {})
    net = export_net_of(network, about, images, scoring)
    with tempfile.TemporaryDirectory() as scratch:
        draft = Path(scratch) / "draft_of_export"
        written = write_formats(net, draft, names)
        if head:
            content = read_own(head)
            atomic_write(draft / HEAD, lambda file: file.write(content))
        facts = write_card(net, draft, written, check_folder(draft, net, names))
        _move(draft, out)
    return facts


def _must_be_free(out: Path) -> None:
    try:
        taken = out.exists() and (not out.is_dir() or any(out.iterdir()))
    except OSError as error:  # no file can have that name
        raise InputError(f"out: {short_repr(str(out))} cannot be written ({error.strerror})") from None
    if taken:
        raise InputError(f"out: {out} exists and is not an empty folder")


def write_formats(net: ExportNet, draft: Path, names: Sequence[str]) -> dict[str, dict[str, Any]]:
    """Fill the new folder `draft`; return what is known of each format. OperationError names one that fails."""
    draft.mkdir()
    save(net.network, draft / "weights.safetensors")
    if isinstance(net.network, Network):
        write_json(draft / "genotype.json", net.network.genotype.to_dict())
    write_json(draft / "config.json", dict(net.facts))  # files of the draft read it
    written = {}
    for name in names:
        try:
            written[name] = {"file": FORMATS[name].file} | FORMATS[name].write(net, draft)
        except FAILURES as error:
            reason = re.sub(r"\x1b?\[\d+m", "", str(error)).strip().split("\n")[0]
            raise OperationError(f"export: {name}: {type(error).__name__}: {reason[:300]}") from error
    return written


def write_card(
    net: ExportNet, draft: Path, written: Mapping[str, Mapping[str, Any]], found: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """Write config.json and the card, with what was `found` of each format; return the facts."""
    formats, images = {name: {**written[name], **of} for name, of in found.items()}, len(net.images_NCHW)
    checked = {"images": images, "batch_sizes": [1, images], "tolerance": TOLERANCE}
    most = [of["max_abs_difference"] for name, of in found.items() if FORMATS[name].exact]
    facts = dict(net.facts) | {"checked": checked, "formats": formats, "max_abs_difference": max(most, default=None)}
    write_json(draft / "config.json", facts)
    # A class may have the name of a folder that is no UTF-8: shown escaped here, kept as it is in config.json.
    text = card(facts, package.drawing(net.network))
    (draft / "README.md").write_text(text, encoding="utf-8", errors="backslashreplace")
    return facts


def _move(draft: Path, out: Path) -> None:
    """Move the finished folder to `out`, whole or not at all."""
    existed = out.exists()
    try:
        shutil.copytree(draft, out, dirs_exist_ok=True)
    except OSError as error:
        for path in out.glob("*") if existed else ():
            path.unlink()
        if not existed:
            shutil.rmtree(out, ignore_errors=True)
        reason = error.strerror or str(error).split("\n")[0][:200]
        raise InputError(f"out: {out} cannot be written ({reason})") from None
