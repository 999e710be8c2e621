"""The registry of export formats and what each must give, `Format`. Loads no torch before a format is asked for.

A new format is a file of this folder with its `Format` in FORMATS, its name below, and, for a new kind of file, a
loader in `isolated.py`, which loads it again without alternas.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...archs.errors import InputError, check_choice

if TYPE_CHECKING:
    from .export_net import ExportNet

FORMATS = {  # the file of this folder that writes it
    "package": "package",
    "onnx": "onnx",
    "onnx-int8": "quantize",
    "onnx-fp16": "onnx",
    "pt2": "pt2",
    "pt2-bf16": "pt2",
    "openvino": "openvino",
    "litert": "litert",
    "timm": "timm",
}


@dataclass(frozen=True)
class Format:
    """One way to export a net."""

    title: str  # of its part of the model card
    file: str  # its main file
    # writes its files to a folder and returns what is known of them; "weights" is the name of a second one
    write: Callable[[ExportNet, Path], dict[str, Any]]
    prose: str  # the file of prose/ that says how to load it
    files: Mapping[str, str]  # what each of its files is, by name
    requires: tuple[str, ...] = ()  # packages that must be installed
    exact: bool = True  # whether its logits must be the net's; those of a lower precision are compared by their answers
    extra: str = "export"  # of alternas, which installs what it requires

    def usage(self, facts: Mapping[str, Any]) -> str:
        """How to load it, in Markdown, for a net of these facts."""
        return prose(self.prose, file=self.file, facts=facts)


def prose(name: str, **values: Any) -> str:
    """The text of a file of prose/, a template of Jinja, with these values put in."""
    from jinja2 import Environment, StrictUndefined

    from ..ranking.stats import MeanCI, mean_ci_text
    from ..render.terminal import markdown_text

    page = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    page.filters |= {"md": markdown_text, "mean": lambda over: mean_ci_text(MeanCI(**over)), "repr": repr}
    return page.from_string((Path(__file__).parent / "prose" / name).read_text(encoding="utf-8")).render(values)


def format_of(name: str) -> Format:
    """The format of this name."""
    return import_module(f".{FORMATS[name]}", __package__).FORMATS[name]


def check_formats(text: str) -> tuple[str, ...]:
    """The formats of a comma list, each once, timm with the package it needs; InputError if one cannot be written."""
    names = {check_choice("formats", name.strip(), FORMATS) for name in text.split(",")}
    names |= {"package"} if "timm" in names else set()
    for name in names:
        missing = [package for package in format_of(name).requires if find_spec(package) is None]
        if missing:
            which = f"which {'is' if len(missing) == 1 else 'are'} not installed"
            hint = f'pip install "alternas[{format_of(name).extra}]"'
            raise InputError(f"formats: {name} needs {', '.join(missing)}, {which}: {hint}")
    return tuple(name for name in FORMATS if name in names)
