"""Registry of export formats. Nothing here loads torch before a format is asked for.

A new format is a file of this folder, named as the format with `_` for `-`, that defines FORMAT; its name below; and a
function of that name in `isolated.py`, which loads it again without alternas.
"""

from __future__ import annotations

from importlib import import_module
from importlib.util import find_spec
from typing import TYPE_CHECKING

from ...archs.errors import InputError, check_choice

if TYPE_CHECKING:
    from .export_net import Format

FORMATS = ("package", "onnx", "onnx-int8", "onnx-fp16", "pt2", "pt2-bf16", "openvino", "litert", "timm")


def format_of(name: str) -> Format:
    """The format of this name."""
    return import_module(f".{name.replace('-', '_')}", __package__).FORMAT


def check_formats(text: str) -> tuple[str, ...]:
    """The formats of a comma list, each once, in the order of `FORMATS`; timm brings the package, which it stands on.

    Raises:
        InputError: if one is unknown or needs a package that is not installed.
    """
    names = {check_choice("formats", name.strip(), FORMATS) for name in text.split(",")}
    names |= {"package"} if "timm" in names else set()
    for name in names:
        missing = [package for package in format_of(name).requires if find_spec(package) is None]
        if missing:
            which = f"which {'is' if len(missing) == 1 else 'are'} not installed"
            hint = f'pip install "alternas[{format_of(name).extra}]"'
            raise InputError(f"formats: {name} needs {', '.join(missing)}, {which}: {hint}")
    return tuple(name for name in FORMATS if name in names)
