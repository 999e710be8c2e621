"""All analyses by name, in the order of a report; each file is imported when its analysis is done."""

from __future__ import annotations

import importlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...archs.errors import InputError, check_choice

if TYPE_CHECKING:
    from ..analysis_tools.inputs import AnalysisInput, AnalysisResult


@dataclass(frozen=True)
class Analysis:
    """What an analysis shows, its results/analysis/FILE.py with a function `analyse`, and whether it takes two nets."""

    about: str
    file: str
    two: bool = False


ANALYSES = {
    "variance": Analysis("What blocks do to the variance of feature maps", "variance"),
    "fourier": Analysis("Which frequencies blocks let pass", "fourier"),
    "lesion": Analysis("What each unit is worth", "lesion"),
    "skips": Analysis("What skip connections carry, and what they are worth", "skip_connections"),
    "cka": Analysis("Which layers are alike", "cka"),
    "cka_between": Analysis("Which layers of two nets are alike", "cka", two=True),
    "linear": Analysis("Where classes become readable", "linear_probe"),
    "field": Analysis("How far layers see", "receptive_field"),
    "tokens": Analysis("Whether tokens keep their places", "token_localization"),
    "translation": Analysis("Whether features move with the picture, and answers stay", "translation"),
    "distance": Analysis("How far attention looks", "attention_distance"),
    "heads": Analysis("Which heads resemble a second net's low layers", "head_cka", two=True),
    "rollout": Analysis("What the output draws on", "rollout"),
    "positions": Analysis("What position embeddings learned", "position_embeddings"),
    "filters": Analysis("What patch filters learned", "patch_filters"),
    "noise": Analysis("Which frequencies of noise hurt", "frequency_noise"),
    "robustness": Analysis("Which corruptions hurt", "robustness"),
    "hessian": Analysis("How curved the loss is", "hessian"),
    "landscape": Analysis("The loss around the weights", "landscape"),
}


def chosen(names: tuple[str, ...]) -> list[str]:
    """Names of the chosen analyses in the registry's order, all if none is given; InputError if one does not exist."""
    for name in names:
        check_choice("analysis", name, ANALYSES)
    return [name for name in ANALYSES if not names or name in names]


def analyse(
    name: str, subject: AnalysisInput, other: AnalysisInput | None = None, **options: Any
) -> AnalysisResult | str:
    """The result of analysis `name`, or one line on why there is none: its InputError, or that it needs two nets."""
    entry = ANALYSES[name]
    if entry.two and other is None:
        return "wants a second net: --against"
    function = importlib.import_module(f".{entry.file}", __package__).analyse
    try:
        return function(subject, other, **options) if entry.two else function(subject, **options)
    except InputError as error:
        return str(error)
