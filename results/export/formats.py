"""The registry of export formats: each is a file of this folder; `isolated.py` checks what it wrote."""

from __future__ import annotations

from importlib.util import find_spec

from ...archs import InputError
from ...archs.errors import check_choice
from . import onnx, package, pt2, timm
from .export_net import Format

FORMATS: dict[str, Format] = {
    "package": package.FORMAT,
    "onnx": onnx.FORMAT,
    "pt2": pt2.FORMAT,
    "timm": timm.FORMAT,
}


def check_formats(text: str) -> tuple[str, ...]:
    """The formats of a comma list, each once, in the order of `FORMATS`; timm brings the package, which it stands on.

    Raises:
        InputError: if one is unknown or needs a package that is not installed.
    """
    names = {check_choice("formats", name.strip(), FORMATS) for name in text.split(",")}
    names |= {"package"} if "timm" in names else set()
    for name in names:
        missing = [package for package in FORMATS[name].requires if find_spec(package) is None]
        if missing:
            which = f"which {'is' if len(missing) == 1 else 'are'} not installed"
            hint = 'pip install "alternas[export]"'
            raise InputError(f"formats: {name} needs {', '.join(missing)}, {which}: {hint}")
    return tuple(name for name in FORMATS if name in names)
