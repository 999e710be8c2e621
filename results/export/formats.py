"""The registry of export formats, `FORMATS`, and what each must give, `Format`. Loads no torch before one is written.

A new format is an entry below, a function that writes it, a text of prose/ that says how it is loaded, and, for a new
kind of file, a loader in `isolated.py`, which loads it again without alternas.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ...archs.errors import InputError, check_choice

if TYPE_CHECKING:
    from .export_net import ExportNet

ONNX = ("onnx", "onnxscript", "onnxruntime")


@dataclass(frozen=True)
class Format:
    """One way to export a net."""

    title: str  # of its part of the model card
    file: str  # its main file
    about: str  # what that is
    writer: str  # "module:function" of this folder: of the net and the path of its main file; returns what is known
    prose: str  # the file of prose/ that says how to load it
    more_files: Mapping[str, str] = field(default_factory=dict)  # what other files are that it may have, by name
    requires: tuple[str, ...] = ()  # packages that must be installed
    exact: bool = True  # whether its logits must be the net's; those of a lower precision are compared by their answers
    extra: str = "export"  # of alternas, which installs what it requires

    @property
    def files(self) -> dict[str, str]:
        """What each of its files is, by name."""
        return {self.file: self.about, **self.more_files}

    def write(self, net: ExportNet, folder: Path) -> dict[str, Any]:
        """Write its files to a folder and return what is known of them; "weights" is the name of a second one."""
        module, _, function = self.writer.partition(":")
        return getattr(import_module(f".{module}", __package__), function)(net, folder / self.file)

    def usage(self, facts: Mapping[str, Any]) -> str:
        """How to load it, in Markdown, for a net of these facts."""
        return prose(self.prose, file=self.file, facts=facts)


FORMATS = {
    "package": Format(
        "torch", "model.py", "the net's code in one file, and functions that load it", "package:write", "package.md"
    ),
    "onnx": Format(
        "onnxruntime", "model.onnx", "the net for onnxruntime and other runtimes", "onnx:write", "onnx.md",
        {"model.onnx.data": "its weights, where they are too many for one file"}, ONNX,
    ),
    "onnx-int8": Format(
        "onnxruntime, int8", "model.int8.onnx", "the net in int8 for onnxruntime", "quantize:write", "onnx.md",
        requires=ONNX, exact=False,
    ),
    "onnx-fp16": Format(
        "onnxruntime, float16", "model.fp16.onnx", "the net in float16 for onnxruntime", "onnx:write_fp16", "onnx.md",
        requires=ONNX, exact=False,
    ),
    "pt2": Format(
        "torch.export", "model.pt2", "the net as a program of torch.export", "programs:write_pt2", "pt2.md"
    ),
    "pt2-bf16": Format(
        "torch.export, bfloat16", "model.bf16.pt2", "the net in bfloat16 as a program of torch.export",
        "programs:write_bf16", "pt2.md", exact=False,
    ),
    "openvino": Format(
        "OpenVINO", "model.xml", "the net for OpenVINO", "programs:write_openvino", "openvino.md",
        {"model.bin": "its weights"}, ("openvino", "onnx", "onnxscript"), extra="openvino",
    ),
    "litert": Format(
        "LiteRT", "model.tflite", "the net for LiteRT, which was TensorFlow Lite", "programs:write_litert", "litert.md",
        requires=("litert_torch", "ai_edge_litert"), extra="litert",
    ),
    "timm": Format("timm", "timm_model.py", "registers the net with timm", "package:write_timm", "timm.md"),
}  # fmt: skip


def prose(name: str, **values: Any) -> str:
    """The text of a file of prose/, a template of Jinja, with these values put in."""
    from jinja2 import Environment, StrictUndefined

    from ..ranking.stats import MeanCI, mean_ci_text
    from ..render.terminal import markdown_text

    page = Environment(trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=True, undefined=StrictUndefined)
    page.filters |= {"md": markdown_text, "mean": lambda over: mean_ci_text(MeanCI(**over)), "repr": repr}
    return page.from_string((Path(__file__).parent / "prose" / name).read_text(encoding="utf-8")).render(values)


def check_formats(text: str) -> tuple[str, ...]:
    """The formats of a comma list, each once, timm with the package it needs; InputError if one cannot be written."""
    names = {check_choice("formats", name.strip(), FORMATS) for name in text.split(",")}
    names |= {"package"} if "timm" in names else set()
    for name in names:
        missing = [package for package in FORMATS[name].requires if find_spec(package) is None]
        if missing:
            which = f"which {'is' if len(missing) == 1 else 'are'} not installed"
            hint = f'pip install "alternas[{FORMATS[name].extra}]"'
            raise InputError(f"formats: {name} needs {', '.join(missing)}, {which}: {hint}")
    return tuple(name for name in FORMATS if name in names)
