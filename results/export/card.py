"""README.md of an exported folder: a model card as Hugging Face's Hub reads it, with what was measured.

Its front matter is YAML whose values are written as JSON, which YAML includes: a class may be called anything. In the
text what users wrote is without markup.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...archs.pictures import LEVELS
from ..ranking.stats import MeanCI, mean_ci_text
from ..render.terminal import markdown_text
from .check import warnings
from .formats import format_of

FOUND = " found by alternas, an architecture search over ResNets, AlterNets and hybrids of convolution and attention."
FROM_TIMM = "An image classifier of timm, trained from fresh weights by alternas beside an architecture search."
FROM_CUT = "{what}: {trunk}, pretrained, cut after its block {place}, with a linear head; found by alternas."
LICENCE = "Licence of the code: Apache-2.0. "
OF_TRUNK = (
    "The trunk began with weights of {trunk}, trained on: {pretrained_on}. Their licence, as far as it is known: \
{licence}; its terms hold for what was made of them too.\n"
)
FILES = {  # of every export; there is no genotype of timm's nets
    "README.md": "this card",
    "config.json": "classes, normalisation, accuracy, cost, versions, and how each format was checked",
    "genotype.json": "the architecture as a value; `alternas cost genotype.json SIZES` takes it",
    "weights.safetensors": "the final weights: averaged ones, where the recipe averages",
}

HEAD = "head.safetensors"


def card(facts: Mapping[str, Any], layout: Sequence[str]) -> str:
    """The card's text, of what config.json says; `layout` is the net, a line a part."""
    parts = [
        f"---\n{front_matter(facts)}---\n",
        f"# {markdown_text(facts['name'])}\n\n{_origin(facts)}\n",
        "## The net\n\n```text\n" + "\n".join(layout) + "\n```\n",
        "## What was measured\n\n" + _table(measured(facts)),
        "## Files\n\n" + _table(_files(facts)),
        "## Use\n\nWith this folder as the working folder. `images` are (N, C, H, W), in the data's own values.\n",
        *(f"### {format_of(name).title}\n\n{format_of(name).usage(facts)}" for name in facts["formats"]),
        "## Limitations\n\n" + "".join(f"- {line}\n" for line in limitations(facts)),
        _licence(facts),
    ]
    return "\n".join(parts)


def front_matter(facts: Mapping[str, Any]) -> str:
    """YAML front matter, without its dashes."""
    formats = facts["formats"]
    task = "image-feature-extraction" if facts.get("backbone") else "image-classification"
    fields: dict[str, Any] = {
        "license": facts.get("cut", {}).get("licence", "unknown"),
        "library_name": "timm"
        if "timm" in formats or "timm" in facts or facts.get("cut", {}).get("recipe")
        else "pytorch",
        "pipeline_tag": task,
        "tags": [task, "alternas", facts["family"], *(["onnx"] if "onnx" in formats else [])],
    }
    if facts["accuracy"] is not None:
        results = [
            {
                "task": {"type": task},
                "dataset": {"name": facts["data"], "type": facts["data"], "split": split},
                "metrics": [{"type": "accuracy", "value": value}],
            }
            for split, value in (("validation", facts["accuracy"]), ("test", facts.get("test_accuracy")))
            if value is not None
        ]
        fields |= {"metrics": ["accuracy"], "model-index": [{"name": facts["name"], "results": results}]}
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in fields.items())


def measured(facts: Mapping[str, Any]) -> dict[str, str]:
    """Rows of the card's table of measurements."""
    (height, width), (low, high) = facts["image_size"], facts["levels"]
    levels = "" if (low, high) == LEVELS else f"; values of {low:,} to {high:,} in picture files are 0 to 255"
    labels, answers = "classes", {}
    if facts.get("several_labels"):
        labels, answers = "labels", {"logits": "one a label, each for a sigmoid of its own; a softmax means nothing"}
    names, more = facts["classes"], " ..." if len(facts["classes"]) > 20 else ""
    return {
        "family": markdown_text(facts["family"]),
        **_accuracies(facts),
        **_training(facts),
        "MACs": f"{facts['macs']:,} (batch 1; multiply-accumulates of conv, linear and attention)",
        "parameters": f"{facts['params']:,}",
        "input": f"{facts['in_chans']} x {height} x {width}{levels}",
        "mean, standard deviation": f"{facts['mean']}, {facts['std']}, in the data's own values",
        **({"pretrained on": facts["cut"]["pretrained_on"]} if "cut" in facts else {}),
        labels: f"{len(names)}: {markdown_text(', '.join(names[:20]))}{more}",
        **answers,
        **_checked(facts),
    }


def _checked(facts: Mapping[str, Any]) -> dict[str, str]:
    """How the formats compare with the searched net: the exact ones in one row, each of the others in its own."""
    exact = {name: of for name, of in facts["formats"].items() if format_of(name).exact}
    rows = {name: found_text(name, of) for name, of in facts["formats"].items() if name not in exact}
    if not exact:
        return rows
    sizes = " and ".join(map(str, facts["checked"]["batch_sizes"]))
    equal = ", ".join(f"{name} to {of['max_abs_difference']:.1e}" for name, of in exact.items())
    on = f"on {markdown_text(facts['checked_on'])}, in batches of {sizes}"
    return {"checked": f"{on}: logits equal those of the searched net, {equal}"} | rows


def found_text(name: str, of: Mapping[str, Any]) -> str:
    """How a format compares with the searched net."""
    if format_of(name).exact:
        return f"outputs equal to {of['max_abs_difference']:.1e}"
    agreement = f"agrees with float32 on {of['agreement']:.2%} of {of['images']:,} images"
    metric = "map" if "map" in of else "accuracy"
    if metric not in of:
        return agreement
    return f"{metric} {of[metric]:.4f}, in float32 {of[f'float_{metric}']:.4f}; {agreement}"


def _accuracies(facts: Mapping[str, Any]) -> dict[str, str]:
    rows: dict[str, str] = {}
    if facts["accuracy"] is not None:
        rows["accuracy"] = f"{facts['accuracy']:.4f} ({markdown_text(facts['accuracy_on'])})"
    if facts.get("test_accuracy") is not None:
        rows["test accuracy"] = f"{facts['test_accuracy']:.4f}"
    metric = facts.get("metric", "accuracy")
    if "metric" in facts:
        rows[metric] = f"{facts['value']:.4f} ({markdown_text(facts['accuracy_on'])}), which it was chosen by"
    for name in (f"{of}{metric}_over_seeds" for of in ("", "test_")):
        if facts.get(name):
            rows[name.replace("_", " ")] = mean_ci_text(MeanCI(**facts[name]))
    return rows


def _training(facts: Mapping[str, Any]) -> dict[str, str]:
    if facts.get("trained") is None:
        return {}
    recipe = "{recipe}, {epochs} epochs, {done} steps".format_map({"done": "?"} | facts["trained"])
    if tuned := facts["trained"].get("tuned"):
        recipe += f", with {', '.join(f'{name} {_field_text(of)}' for name, of in tuned.items())}"
    if facts.get("weights_of_cut") == "frozen":
        recipe = "none: the trunk is as it was pretrained, its linear head a ridge classifier in closed form"
    of_seeds = "one training"
    if facts.get("seeds", 1) > 1:
        of_seeds = f"{facts.get('seed_chosen', 'the best on validation')} of {facts['seeds']} seeds"
    rows = {
        "data": markdown_text(facts["data"]),
        "recipe": markdown_text(recipe),
        **({} if facts.get("weights_of_cut") == "frozen" else {"seed": f"{facts['seed']} ({of_seeds})"}),
    }
    versions = ", ".join(f"{name} {version}" for name, version in facts["versions"].items())
    return rows | ({"trained with": markdown_text(versions)} if versions else {})


def _field_text(value: Any) -> str:
    """A recipe field as text; of an augmentation its parts that are on."""
    if not isinstance(value, dict):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(f"{name}={_field_text(part)}" for name, part in value.items() if part) or "none"


def _files(facts: Mapping[str, Any]) -> dict[str, str]:
    height, width = facts["image_size"]
    sizes = f"--image-size {height}x{width} --classes {len(facts['classes'])} --channels {facts['in_chans']}"
    of_timm = "timm" in facts or "cut" in facts
    written = {name: about for name, about in FILES.items() if not (name == "genotype.json" and of_timm)}
    rows = {f"`{name}`": about.replace("SIZES", sizes) for name, about in written.items()}
    if facts.get("head"):
        rows[f"`{HEAD}`"] = "the final weights of the head that was trained on the net's maps, by the trainer's names"
    for name, known in facts["formats"].items():
        written = (known["file"], known.get("weights"))
        rows |= {f"`{file}`": about for file, about in format_of(name).files.items() if file in written}
    return rows


def limitations(facts: Mapping[str, Any]) -> list[str]:
    """Limitations of the net, one line each."""
    height, width = facts["image_size"]
    size = f"images of {height} x {width} alone: its positions are made for that size"
    if "cut" in facts:
        size = f"images of {height} x {width} alone"
    elif not facts["fixed_size"]:
        size = f"made for images of {height} x {width}; windows of attention, if any, must divide the maps of others"
    lines = [
        f"Input: {size}. Files of ONNX and torch.export take this one size.",
        "Checked on the CPU alone. An accuracy of int8, float16 or bfloat16 is that of the CPU it was measured on.",
        *(f"{line}." for line in warnings(facts["formats"])),
    ]
    if facts.get("backbone"):
        lines.insert(0, "Its maps were trained, not its classifier: the logits mean nothing.")
    if facts.get("several_labels"):
        threshold = "one half is a threshold like any other: choose one for each label on images of your own"
        lines.append(f"Labels: any number of them, none too, may have a sigmoid above one half; {threshold}.")
        return [*lines, f"It knows the labels of {markdown_text(facts['data'])} and images like those alone."]
    if facts["accuracy"] is None:
        return [*lines, "Nothing is known of its accuracy."]
    if facts.get("weights_of_cut"):
        lines.append("The net was chosen by the same cross-validation; on new images expect less than that accuracy.")
        return [*lines, f"It knows the classes of {markdown_text(facts['data'])} and images like those alone."]
    if facts.get("seeds", 1) < 2:
        lines.append("The accuracy is of one training: another seed gives another number.")
    if facts.get("test_accuracy") is None:
        lines.append("The net was chosen on the validation split; on new images expect less than the accuracy above.")
    return [*lines, f"It knows the classes of {markdown_text(facts['data'])} and images like those alone."]


def _origin(facts: Mapping[str, Any]) -> str:
    if "cut" in facts:
        return FROM_CUT.format(what=_what(facts), **facts["cut"])
    return FROM_TIMM if "timm" in facts else _what(facts) + FOUND


def _licence(facts: Mapping[str, Any]) -> str:
    if "cut" in facts:
        return LICENCE + OF_TRUNK.format_map(facts["cut"])
    return f"{LICENCE}The licence of the weights is for those who trained them to say; it depends on the data.\n"


def _what(facts: Mapping[str, Any]) -> str:
    classifier = "A classifier of several labels an image" if facts.get("several_labels") else "An image classifier"
    kind = "A backbone" if facts.get("backbone") else classifier
    return kind + (f", trained by {markdown_text(facts['trainer'])}," if facts.get("trainer") else "")


def _table(rows: Mapping[str, str]) -> str:
    return "| | |\n| --- | --- |\n" + "".join(f"| {name} | {value} |\n" for name, value in rows.items())
