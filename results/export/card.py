"""README.md of an exported folder: a model card as Hugging Face's Hub reads it, with what was measured.

Its text is prose/card.md; how each format is used, the file of prose/ that the format names. The front matter is YAML
whose values are written as JSON, which YAML includes: a class may be called anything. In the text what users wrote is
without markup.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from ...archs.pictures import LEVELS
from .check import warnings
from .formats import FORMATS, prose

HEAD = "head.safetensors"


def card(facts: Mapping[str, Any], layout: Sequence[str]) -> str:
    """The card's text, of what config.json says; `layout` is the net, a line a part."""
    formats = {name: (FORMATS[name], known) for name, known in facts["formats"].items()}
    files = dict[str, str]()
    for form, known in formats.values():
        written = (known["file"], known.get("weights"))
        files |= {file: about for file, about in form.files.items() if file in written}
    return prose(
        "card.md",
        facts=facts,
        layout="\n".join(layout),
        front_matter=front_matter(facts),
        usual_levels=LEVELS,
        recipe=recipe_text(facts),
        versions=", ".join(f"{name} {version}" for name, version in facts.get("versions", {}).items()),
        exact={name: known for name, (form, known) in formats.items() if form.exact},
        lower={name: found_text(name, known) for name, (form, known) in formats.items() if not form.exact},
        head=HEAD,
        files=files,
        formats=[(form.title, form.usage(facts)) for form, _ in formats.values()],
        warnings=warnings(facts["formats"]),
    )


def front_matter(facts: Mapping[str, Any]) -> str:
    """YAML front matter, without its dashes."""
    formats, cut = facts["formats"], facts.get("cut", {})
    task = "image-feature-extraction" if facts.get("backbone") else "image-classification"
    fields: dict[str, Any] = {
        "license": cut.get("licence", "unknown"),
        "library_name": "timm" if "timm" in formats or "timm" in facts or cut.get("recipe") else "pytorch",
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


def found_text(name: str, of: Mapping[str, Any]) -> str:
    """How a format compares with the searched net."""
    if FORMATS[name].exact:
        return f"outputs equal to {of['max_abs_difference']:.1e}"
    agreement = f"agrees with float32 on {of['agreement']:.2%} of {of['images']:,} images"
    metric = "map" if "map" in of else "accuracy"
    if metric not in of:
        return agreement
    return f"{metric} {of[metric]:.4f}, in float32 {of[f'float_{metric}']:.4f}; {agreement}"


def recipe_text(facts: Mapping[str, Any]) -> str:
    """How the net was trained, with the fields of its recipe that the search drew."""
    trained = facts.get("trained") or {}
    if facts.get("weights_of_cut") == "frozen":
        return "none: the trunk is as it was pretrained, its linear head a ridge classifier in closed form"
    recipe = f"{trained.get('recipe')}, {trained.get('epochs')} epochs, {trained.get('done', '?')} steps"
    tuned = ", ".join(f"{name} {_field_text(of)}" for name, of in trained.get("tuned", {}).items())
    return f"{recipe}, with {tuned}" if tuned else recipe


def _field_text(value: Any) -> str:
    """A recipe field as text; of an augmentation its parts that are on."""
    if not isinstance(value, dict):
        return f"{value:.4g}" if isinstance(value, float) else str(value)
    return " ".join(f"{name}={_field_text(part)}" for name, part in value.items() if part) or "none"
